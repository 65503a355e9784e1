package identity_test

import (
	"crypto/tls"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
)

// TestHalfWritten: of a file that holds several certificates, nothing is taken
// as long as one of them is not whole. Half of it would shut clients out, or
// leave out what links the certificate to its root.
func TestHalfWritten(t *testing.T) {
	ca, other := identitytest.NewCA(t), identitytest.NewCA(t)
	both := slices.Concat(ca.PEM, []byte("# the other one\n"), other.PEM)
	damaged := slices.Clone(both)
	damaged[len(ca.PEM)/2] = '!'
	no := []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	for name, tt := range map[string]struct {
		content []byte
		says    string // "" = it is good
	}{
		"whole":                  {both, ""},
		"cut in the second":      {both[:len(both)-len(other.PEM)/2], "1 of 2 blocks"},
		"cut in its first line":  {both[:len(both)-len(other.PEM)+20], "1 of 2 blocks"},
		"cut before its end":     {both[:len(both)-10], "1 of 2 blocks"},
		"a damaged line":         {damaged, "1 of 2 blocks"},
		"cut in the first":       {ca.PEM[:100], "0 of 1 blocks"},
		"no certificate":         {slices.Concat(ca.PEM, no), "certificate 2"},
		"between certificates":   {both[:len(ca.PEM)+5], ""}, // nothing tells
		"nothing but a comment":  {[]byte("# later\n"), "no PEM certificate"},
		"the end without a line": {both[:len(both)-1], ""},
	} {
		f := ca.Write(t.TempDir(), identitytest.Leaf{})
		identitytest.Replace(t, f.ClientCA, tt.content)
		_, err := identity.OpenCertificates(f, identity.Options{Name: "xds"})
		expect(t, name+", of clients", err, f.ClientCA, tt.says)
		_, err = identity.DialFiles{CA: f.ClientCA}.Config()
		expect(t, name+", of the server", err, f.ClientCA, tt.says)
	}
}

// TestHalfAChain: a certificate whose chain is cut off is not taken without it.
func TestHalfAChain(t *testing.T) {
	ca := identitytest.NewCA(t)
	f := ca.Write(t.TempDir(), identitytest.Leaf{})
	cert, key := ca.Issue(identitytest.Leaf{})
	identitytest.Replace(t, f.Cert, slices.Concat(cert, ca.PEM[:len(ca.PEM)-40]))
	identitytest.Replace(t, f.Key, key)
	if _, err := tls.LoadX509KeyPair(f.Cert, f.Key); err != nil {
		t.Fatalf("crypto/tls tells by itself: %v", err)
	}
	_, err := identity.OpenCertificates(f, identity.Options{Name: "xds"})
	expect(t, "a listener's", err, f.Cert, "1 of 2 blocks")
	_, err = identity.DialFiles{Cert: f.Cert, Key: f.Key}.Config()
	expect(t, "a client's", err, f.Cert, "1 of 2 blocks")
}

func expect(t *testing.T, name string, err error, path, says string) {
	t.Helper()
	if says == "" {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), filepath.Base(path)) || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v, want %q", name, err, says)
	}
}
