package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestStatusTellsOfFilesThatAreRefused: what is wrong with the files on disk
// needs attention until it is fixed, though what they held before goes on.
func TestStatusTellsOfFilesThatAreRefused(t *testing.T) {
	ca := identitytest.NewCA(t)
	dir := t.TempDir()
	files := ca.Write(dir, identitytest.Leaf{NotAfter: time.Now().Add(20 * time.Hour)})
	token := filepath.Join(dir, "token")
	text := fmt.Sprintf(`
xds: {listen: "127.0.0.1:0", tls: {cert: %q, key: %q, client_ca: %q}}
admin: {listen: "127.0.0.1:0", token_file: %q}
services: [{name: checkout, localities: [{locality: us/a, endpoints: ["10.0.0.1:80"]}]}]
`, files.Cert, files.Key, files.ClientCA, token)
	path := filepath.Join(dir, "isobar.yaml")
	write := func(path, text string) { identitytest.Replace(t, path, []byte(text)) }
	write(token, "0123456789abcdef")
	write(path, text)
	s, _ := serveFile(t, path)
	told := attention(t, s.AdminAddress())
	testhelp.Eventually(t, "nothing needs attention", func() bool { return told() == "" })

	key, err := os.ReadFile(files.Key)
	if err != nil {
		t.Fatal(err)
	}
	write(files.Key, "no key")
	write(token, "short")
	write(path, text+"nonsense: 1\n")
	for _, want := range []string{
		"Isobar refuses the configuration file: " + path,
		"Isobar can't use the certificate files of the listener xds on disk: " + files.Cert,
		"Isobar can't use the token file on disk: " + token,
	} {
		testhelp.Eventually(t, want, func() bool { return strings.Contains(told(), want) })
	}
	remote, err := admin.NewRemote("http://" + s.AdminAddress())
	if err != nil {
		t.Fatal(err)
	}
	status, err := remote.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	attends(t, status, admin.FileRefused)
	write(files.Key, string(key))
	write(token, "fedcba9876543210")
	write(path, text)
	testhelp.Eventually(t, "nothing needs attention again", func() bool { return told() == "" })
}

// attention asks a server what needs attention.
func attention(t *testing.T, address string) func() string {
	t.Helper()
	remote, err := admin.NewRemote("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	return func() string {
		t.Helper()
		s, err := remote.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(admin.AttentionTexts(s.Attention), "\n")
	}
}

// TestStatusTellsOfTheCertificateForTheOtherControlPlane: until when that is
// good which the next connection would show, and what is wrong with it.
func TestStatusTellsOfTheCertificateForTheOtherControlPlane(t *testing.T) {
	ca := identitytest.NewCA(t)
	dir := t.TempDir()
	soon := time.Now().Add(time.Hour).Truncate(time.Second)
	files := ca.Write(dir, identitytest.Leaf{NotAfter: soon})
	l := onLoopback(t, func(c *config.Config) {
		c.Discovery.XDS = &config.XDSDiscovery{
			Server: "127.0.0.1:1", TLS: &config.ClientTLS{CA: files.ClientCA, Cert: files.Cert, Key: files.Key},
			Services: []config.ListedService{{EDSName: "listed", Service: isobar.Service{Name: "listed"}}},
		}
	})
	told := attention(t, l.server.AdminAddress())
	if want := "the certificate of discovery.xds expires at " + soon.UTC().Format(time.RFC3339); !strings.Contains(told(), want) {
		t.Errorf("no %q in %q", want, told())
	}
	identitytest.Replace(t, files.Key, []byte("no key"))
	if want := "the certificate of discovery.xds can't be used: " + files.Cert; !strings.Contains(told(), want) {
		t.Errorf("no %q in %q", want, told())
	}
	ca.Write(dir, identitytest.Leaf{NotAfter: soon.Add(20 * time.Hour)})
	if got := told(); strings.Contains(got, "certificate of discovery.xds") {
		t.Errorf("a new certificate needs attention: %q", got)
	}
}

// TestStatusTellsOfCertificates: it lists those that the listeners show, and
// tells of one that ends soon until its files are replaced.
func TestStatusTellsOfCertificates(t *testing.T) {
	ca := identitytest.NewCA(t)
	dir := t.TempDir()
	late, soon := time.Now().Add(20*time.Hour).Truncate(time.Second), time.Now().Add(time.Hour).Truncate(time.Second) // of a day
	xds, operators := ca.Write(t.TempDir(), identitytest.Leaf{NotAfter: late}), ca.Write(dir, identitytest.Leaf{NotAfter: soon})
	operators.ClientCA = ""
	l := onLoopback(t, func(c *config.Config) { c.XDS.TLS, c.Admin.TLS = &xds, &operators })
	remote, err := admin.NewRemote("https://"+l.server.AdminAddress(), admin.WithTLS(ca.Client(nil)))
	if err != nil {
		t.Fatal(err)
	}
	status := func() (s admin.Status, told string) {
		t.Helper()
		s, err := remote.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s, strings.Join(admin.AttentionTexts(s.Attention), "\n")
	}
	s, told := status()
	if len(s.Certificates) != 2 || s.Certificates[0].Name != "xds" || !s.Certificates[0].NotAfter.Equal(late) ||
		s.Certificates[1].Name != "admin" || !s.Certificates[1].NotAfter.Equal(soon) {
		t.Errorf("got %+v", s.Certificates)
	}
	if want := "the certificate of the listener admin expires at " + soon.UTC().Format(time.RFC3339); !strings.Contains(told, want) || strings.Contains(told, "listener xds") {
		t.Errorf("no %q in %q", want, told)
	}
	ca.Write(dir, identitytest.Leaf{NotAfter: late})
	testhelp.Eventually(t, "the new certificate needs no attention", func() bool {
		_, told := status()
		return !strings.Contains(told, "certificate")
	})
}
