package member

import (
	"crypto/tls"
	"crypto/x509"
	"errors"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/replica"
)

// Listener names the listener for peers in the list of certificates of the server.
const Listener = "replicas"

// openTLS reads the certificates of connections between replicas, and returns those that
// this one shows; nil = plaintext on loopback.
func openTLS(c *config.Replicas, options identity.Options, o *replica.Options) (*identity.Certificates, error) {
	if c.TLS == nil {
		return nil, nil //nolint:nilnil // no certificates are no error
	}
	files := identity.DialFiles{CA: c.TLS.ClientCA, Cert: c.TLS.Cert, Key: c.TLS.Key}
	certificates, err := identity.OpenCertificates(*c.TLS, options)
	if err != nil {
		return nil, err
	}
	first, err := files.Config()
	if err != nil {
		return nil, err
	}
	o.ServerTLS = certificates.Config("h2")
	// Who answers is known by the URI in its certificate, which names group and
	// replica, and not by a host name. The files are read again for each connection.
	o.ClientTLS = &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: first.Certificates,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it, without the host name
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			now, err := files.Config()
			if err != nil || len(now.Certificates) == 0 {
				return &first.Certificates[0], nil //nolint:nilerr // the last good one stays
			}
			return &now.Certificates[0], nil
		},
		VerifyConnection: func(s tls.ConnectionState) error { return verifyReplica(files, s) },
	}
	return certificates, nil
}

// verifyReplica asserts that a certificate is signed by the group's authority.
func verifyReplica(files identity.DialFiles, s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the replica shows no certificate")
	}
	trusted, err := files.Config()
	if err != nil {
		return err
	}
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err = s.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: trusted.RootCAs, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}
