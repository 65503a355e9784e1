// Package identitytest issues certificates for tests.
package identitytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/identity"
)

// CA is a certificate authority.
type CA struct {
	tb   testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	PEM  []byte
}

// Leaf is what a certificate says. The zero value is good for a server on
// loopback, for an hour.
type Leaf struct {
	URIs     []string
	DNS      []string
	Name     string    // common name
	NotAfter time.Time // zero = in an hour
}

// NewCA makes an authority, for a day.
func NewCA(tb testing.TB) *CA {
	tb.Helper()
	return NewCAUntil(tb, time.Now().Add(24*time.Hour))
}

// NewCAUntil makes an authority that ends at a time, 25 hours after its begin.
func NewCAUntil(tb testing.TB, end time.Time) *CA {
	tb.Helper()
	return authority(tb, newKey(tb), end)
}

// Renewed is the same authority with the same key, and a certificate that ends at a time.
func (ca *CA) Renewed(end time.Time) *CA {
	ca.tb.Helper()
	return authority(ca.tb, ca.key, end)
}

func authority(tb testing.TB, key *ecdsa.PrivateKey, end time.Time) *CA {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: serial(tb), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: end.Add(-25 * time.Hour), NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return &CA{tb: tb, cert: cert, key: key, PEM: block("CERTIFICATE", der)}
}

// Issue returns a certificate and its key in PEM.
func (ca *CA) Issue(l Leaf) (cert, key []byte) {
	ca.tb.Helper()
	if l.NotAfter.IsZero() {
		l.NotAfter = time.Now().Add(time.Hour)
	}
	template := &x509.Certificate{
		SerialNumber: serial(ca.tb), Subject: pkix.Name{CommonName: l.Name},
		NotBefore: l.NotAfter.Add(-24 * time.Hour), NotAfter: l.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    append([]string{"localhost"}, l.DNS...), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if l.DNS != nil || l.URIs != nil { // a client
		template.DNSNames, template.IPAddresses = l.DNS, nil
	}
	for _, uri := range l.URIs {
		u, err := url.Parse(uri)
		if err != nil {
			ca.tb.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	private := newKey(ca.tb)
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &private.PublicKey, ca.key)
	if err != nil {
		ca.tb.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		ca.tb.Fatal(err)
	}
	return block("CERTIFICATE", der), block("EC PRIVATE KEY", encoded)
}

// Write issues a certificate into the files cert.pem, key.pem and ca.pem of a
// directory.
func (ca *CA) Write(dir string, l Leaf) identity.Files {
	ca.tb.Helper()
	f := identity.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), ClientCA: filepath.Join(dir, "ca.pem")}
	cert, key := ca.Issue(l)
	Replace(ca.tb, f.Cert, cert)
	Replace(ca.tb, f.Key, key)
	Replace(ca.tb, f.ClientCA, ca.PEM)
	return f
}

// Client returns the settings of a client that trusts the authority and shows a
// certificate of it; a nil leaf shows none.
func (ca *CA) Client(l *Leaf) *tls.Config {
	ca.tb.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	c.RootCAs.AddCert(ca.cert)
	if l == nil {
		return c
	}
	pair, err := tls.X509KeyPair(ca.Issue(*l))
	if err != nil {
		ca.tb.Fatal(err)
	}
	// Shown also to servers that ask for another authority's.
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	return c
}

// Replace replaces a file at once, as cert-manager and
// editors do.
func Replace(tb testing.TB, path string, data []byte) {
	tb.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		tb.Fatal(err)
	}
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func serial(tb testing.TB) *big.Int {
	tb.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
