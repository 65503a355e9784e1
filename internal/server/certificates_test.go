package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

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
	if want := "the certificate of the listener admin ends at " + soon.UTC().Format(time.RFC3339); !strings.Contains(told, want) || strings.Contains(told, "listener xds") {
		t.Errorf("no %q in %q", want, told)
	}
	ca.Write(dir, identitytest.Leaf{NotAfter: late})
	testhelp.Eventually(t, "the new certificate needs no attention", func() bool {
		_, told := status()
		return !strings.Contains(told, "certificate")
	})
}
