package identity_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listening is a TLS server with certificates that follow their files.
type listening struct {
	t        *testing.T
	address  string
	log      *testhelp.Log
	registry *prometheus.Registry
}

func listen(t *testing.T, f identity.Files) *listening {
	t.Helper()
	l := &listening{t: t, log: &testhelp.Log{}, registry: prometheus.NewRegistry()}
	certs, err := identity.OpenCertificates(f, identity.Options{
		Name: "xds", Log: slog.New(slog.NewTextHandler(l.log, nil)), Metrics: identity.NewMetrics(l.registry),
	})
	if err != nil {
		t.Fatal(err)
	}
	lis, err := tls.Listen("tcp", "127.0.0.1:0", certs.Config("h2"))
	if err != nil {
		t.Fatal(err)
	}
	l.address = lis.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { certs.Follow(ctx) })
	running.Go(func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer func() { _ = c.Close() }()
				_ = c.(*tls.Conn).Handshake()
				_, _ = c.Write([]byte("x")) // by which a client knows that it is in
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = lis.Close()
		running.Wait()
	})
	return l
}

// serial connects and returns the serial number of the server's certificate.
func (l *listening) serial(c *tls.Config) (string, error) {
	l.t.Helper()
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", l.address, c)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return "", err
	}
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

func (l *listening) must(c *tls.Config) string {
	l.t.Helper()
	s, err := l.serial(c)
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

// TestRotation: a new pair serves new connections; a bad one is told of and
// changes nothing, until a good one comes.
func TestRotation(t *testing.T) {
	ca := identitytest.NewCA(t)
	dir := t.TempDir()
	soon := time.Now().Add(10 * time.Minute).Truncate(time.Second)
	f := ca.Write(dir, identitytest.Leaf{NotAfter: soon})
	l := listen(t, f)
	client := ca.Client(&identitytest.Leaf{DNS: []string{"a.example"}})
	first := l.must(client)
	if got := testhelp.Series(t, l.registry, "isobar_tls_certificate_expiry_seconds")["xds"]; got != float64(soon.Unix()) {
		t.Errorf("expires at %v, want %v", got, soon.Unix())
	}

	ca.Write(dir, identitytest.Leaf{})
	testhelp.Eventually(t, "the second pair", func() bool { return l.must(client) != first })
	second := l.must(client)
	if got := testhelp.Series(t, l.registry, "isobar_tls_certificate_expiry_seconds")["xds"]; got <= float64(soon.Unix()) {
		t.Errorf("expires at %v", got)
	}

	// A certificate without its key.
	cert, key := ca.Issue(identitytest.Leaf{})
	identitytest.Replace(t, f.Cert, cert)
	testhelp.Eventually(t, "the refusal", func() bool {
		return testhelp.Series(t, l.registry, "isobar_tls_reloads_total")["xds,refused,certificates"] == 1
	})
	if got := l.must(client); got != second || testhelp.Series(t, l.registry, "isobar_tls_files_good")["xds,certificates"] != 0 {
		t.Errorf("after a bad pair: %s", got)
	}
	if text := l.log.String(); !strings.Contains(text, "rejected") || !strings.Contains(text, f.Cert) || !strings.Contains(text, "private key does not match") {
		t.Errorf("the log says %s", text)
	}
	identitytest.Replace(t, f.Key, key)
	testhelp.Eventually(t, "the third pair", func() bool { return l.must(client) != second })
	testhelp.Eventually(t, "good again", func() bool { return testhelp.Series(t, l.registry, "isobar_tls_files_good")["xds,certificates"] == 1 })

	// Another authority for clients.
	other := identitytest.NewCA(t)
	identitytest.Replace(t, f.ClientCA, other.PEM)
	stranger := ca.Client(nil)
	stranger.GetClientCertificate = other.Client(&identitytest.Leaf{DNS: []string{"b.example"}}).GetClientCertificate
	testhelp.Eventually(t, "the other authority", func() bool { _, err := l.serial(stranger); return err == nil })
	if _, err := l.serial(client); err == nil {
		t.Error("a client of the old authority still gets in")
	}
	identitytest.Replace(t, f.ClientCA, []byte("nothing"))
	testhelp.Eventually(t, "the bad authority", func() bool { return strings.Contains(l.log.String(), "no PEM certificate in it") })
	if _, err := l.serial(stranger); err != nil {
		t.Errorf("after a bad authority: %v", err)
	}
}

// TestCertificatesOfAnotherTime: what clients would refuse today, by its time, is
// told of and takes no good certificate's place; where none is good it may.
func TestCertificatesOfAnotherTime(t *testing.T) {
	ca := identitytest.NewCA(t)
	dir := t.TempDir()
	f := ca.Write(dir, identitytest.Leaf{})
	l := listen(t, f)
	client := ca.Client(&identitytest.Leaf{DNS: []string{"a.example"}})
	good := l.must(client)
	for _, tt := range []struct {
		notAfter time.Duration
		says     string
	}{
		{-time.Minute, "the certificate expired at "},
		{48 * time.Hour, "the certificate is not valid before "}, // those of the tests live for a day
	} {
		ca.Write(dir, identitytest.Leaf{NotAfter: time.Now().Add(tt.notAfter)})
		testhelp.Eventually(t, tt.says, func() bool {
			text := l.log.String()
			return strings.Contains(text, tt.says) && strings.Contains(text, "the one in force is good until ")
		})
		if got := l.must(client); got != good || testhelp.Series(t, l.registry, "isobar_tls_files_good")["xds,certificates"] != 0 {
			t.Errorf("%s: clients are shown %s, not %s", tt.says, got, good)
		}
	}
	ca.Write(dir, identitytest.Leaf{})
	testhelp.Eventually(t, "one of today", func() bool { return l.must(client) != good })

	late := ca.Write(t.TempDir(), identitytest.Leaf{NotAfter: time.Now().Add(-time.Minute)})
	c, err := identity.OpenCertificates(late, identity.Options{Name: "xds"})
	if err != nil {
		t.Fatalf("a server that starts with an expired certificate: %v", err)
	}
	if _, until := c.Validity(); until.After(time.Now()) {
		t.Errorf("it is good until %v", until)
	}
}

// TestLinkSwap is how Kubernetes replaces the files of a Secret: a link to a
// directory beside them.
func TestLinkSwap(t *testing.T) {
	ca := identitytest.NewCA(t)
	mount := t.TempDir()
	for _, d := range []string{"first", "second"} {
		if err := os.Mkdir(filepath.Join(mount, d), 0o700); err != nil {
			t.Fatal(err)
		}
		ca.Write(filepath.Join(mount, d), identitytest.Leaf{})
	}
	link := func(to string) {
		next := filepath.Join(mount, "..data_tmp")
		if err := os.Symlink(to, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(mount, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	link("first")
	for _, name := range []string{"cert.pem", "key.pem", "ca.pem"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(mount, name)); err != nil {
			t.Fatal(err)
		}
	}
	l := listen(t, identity.Files{
		Cert: filepath.Join(mount, "cert.pem"), Key: filepath.Join(mount, "key.pem"), ClientCA: filepath.Join(mount, "ca.pem"),
	})
	client := ca.Client(&identitytest.Leaf{DNS: []string{"a.example"}})
	first := l.must(client)
	link("second")
	testhelp.Eventually(t, "the swapped pair", func() bool { return l.must(client) != first })
}

func TestWhoGetsNoConnection(t *testing.T) {
	ca, other := identitytest.NewCA(t), identitytest.NewCA(t)
	l := listen(t, ca.Write(t.TempDir(), identitytest.Leaf{}))
	stranger := ca.Client(nil)
	stranger.GetClientCertificate = other.Client(&identitytest.Leaf{DNS: []string{"a.example"}}).GetClientCertificate
	old := ca.Client(&identitytest.Leaf{DNS: []string{"a.example"}})
	old.MaxVersion, old.MinVersion = tls.VersionTLS11, tls.VersionTLS10
	for name, tt := range map[string]struct {
		config *tls.Config
		says   string
	}{
		"none":    {ca.Client(nil), "certificate required"},
		"expired": {ca.Client(&identitytest.Leaf{DNS: []string{"a.example"}, NotAfter: time.Now().Add(-time.Minute)}), "expired certificate"},
		"foreign": {stranger, "unknown certificate authority"},
		"TLS 1.1": {old, "protocol version"},
	} {
		if _, err := l.serial(tt.config); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBadFilesAtTheStart(t *testing.T) {
	ca := identitytest.NewCA(t)
	for name, tt := range map[string]struct {
		spoil func(f *identity.Files)
		says  string
	}{
		"no file":      {func(f *identity.Files) { f.Key += ".not" }, "key.pem.not"},
		"no PEM":       {func(f *identity.Files) { identitytest.Replace(t, f.Cert, []byte("x")) }, "cert.pem"},
		"no authority": {func(f *identity.Files) { identitytest.Replace(t, f.ClientCA, []byte("x")) }, "ca.pem"},
		"huge":         {func(f *identity.Files) { identitytest.Replace(t, f.Cert, make([]byte, 5<<20)) }, "file too large"},
	} {
		f := ca.Write(t.TempDir(), identitytest.Leaf{})
		tt.spoil(&f)
		if _, err := identity.OpenCertificates(f, identity.Options{Name: "xds"}); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	const first, second = "0123456789abcdef", "a token without blanks is better?"
	identitytest.Replace(t, path, []byte(" "+first+"\n"))
	registry := prometheus.NewRegistry()
	token, err := identity.OpenToken(path, identity.Options{Name: "admin", Metrics: identity.NewMetrics(registry)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { token.Follow(ctx) })
	defer running.Wait()
	defer cancel()
	for presented, want := range map[string]bool{first: true, "": false, first + "0": false, " " + first: false, first[:15]: false} {
		if token.Valid(presented) != want {
			t.Errorf("%q: %v", presented, !want)
		}
	}
	identitytest.Replace(t, path, []byte(second)) // blanks within
	identitytest.Replace(t, path, []byte("short"))
	testhelp.Eventually(t, "the refusal", func() bool {
		n, err := testutil.GatherAndCount(registry, "isobar_tls_reloads_total")
		return err == nil && n == 1
	})
	if !token.Valid(first) {
		t.Error("a bad token file took the good token away")
	}
	identitytest.Replace(t, path, []byte("fedcba9876543210"))
	testhelp.Eventually(t, "the new token", func() bool { return token.Valid("fedcba9876543210") && !token.Valid(first) })
	if _, err := identity.OpenToken(path+".not", identity.Options{Name: "admin"}); err == nil {
		t.Error("a token file that is not there")
	}
}

// TestFilesThatAreWrittenInParts: half of a token that is long enough is never the token,
// and a key that comes a moment after its certificate is no error.
func TestFilesThatAreWrittenInParts(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	const first, half, whole = "0123456789abcdef", "fedcba9876543210", "fedcba98765432100123456789"
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(first)
	token, err := identity.OpenToken(path, identity.Options{Name: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	ca := identitytest.NewCA(t)
	files := ca.Write(dir, identitytest.Leaf{})
	client := ca.Client(nil)
	files.ClientCA = ""
	l := listen(t, files)
	before := l.must(client)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { token.Follow(ctx) })
	defer running.Wait()
	defer cancel()
	cert, key := ca.Issue(identitytest.Leaf{})
	writes := map[int]func(){
		0:  func() { write(half); identitytest.Replace(t, files.Cert, cert) },
		25: func() { write(whole); identitytest.Replace(t, files.Key, key) }, // half a second later
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; i < 500 && !token.Valid(whole); i++ {
		if do := writes[i]; do != nil {
			do()
		}
		if token.Valid(half) {
			t.Fatal("half of a token is the token")
		}
		<-tick.C
	}
	if !token.Valid(whole) || token.Valid(first) {
		t.Error("the new token is not in force")
	}
	testhelp.Eventually(t, "the new certificate", func() bool { return l.must(client) != before })
	if strings.Contains(l.log.String(), "rejected") {
		t.Errorf("told: %s", l.log.String())
	}
}

// TestAuthoritiesThatWereRenewed asserts that an old certificate of an authority does not count
// beside a new one with the same key, which is good for what the old one signed.
func TestAuthoritiesThatWereRenewed(t *testing.T) {
	old, other := identitytest.NewCAUntil(t, time.Now().Add(-time.Hour)), identitytest.NewCA(t)
	renewed := old.Renewed(time.Now().Add(time.Hour))
	for name, tt := range map[string]struct {
		bundle []byte
		want   int
	}{
		"the old one alone":  {old.PEM, 1},
		"both":               {slices.Concat(old.PEM, renewed.PEM), 1},
		"the new one first":  {slices.Concat(renewed.PEM, old.PEM), 1},
		"with another's key": {slices.Concat(old.PEM, other.PEM), 2},
	} {
		f := other.Write(t.TempDir(), identitytest.Leaf{})
		identitytest.Replace(t, f.ClientCA, tt.bundle)
		c, err := identity.OpenCertificates(f, identity.Options{Name: "xds"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := c.Authorities()
		if len(got) != tt.want || tt.want == 1 && name != "the old one alone" && got[0].Until.Before(time.Now()) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
