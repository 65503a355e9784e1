package identity

import (
	"crypto/tls"
	"crypto/x509"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// maxName bounds a name that is shown, in bytes.
const maxName = 256

// Peer is a client by the names in its certificate.
type Peer struct {
	name   string
	spiffe spiffeid.ID
	dns    []string
}

// peerOf reads the names of a certificate that TLS has verified. A SPIFFE ID
// counts if it is the only URI in it, as SPIFFE demands; DNS names that hold a
// wildcard name nobody. The common name never counts, it is only shown.
func peerOf(cert *x509.Certificate) *Peer {
	p := &Peer{}
	if len(cert.URIs) == 1 {
		if id, err := spiffeid.FromURI(cert.URIs[0]); err == nil {
			p.spiffe = id
		}
	}
	for _, name := range cert.DNSNames {
		if name != "" && !strings.Contains(name, anyPart) {
			p.dns = append(p.dns, name)
		}
	}
	switch {
	case !p.spiffe.IsZero():
		p.name = p.spiffe.String()
	case len(p.dns) > 0:
		p.name = strings.ToLower(p.dns[0])
	default:
		p.name = "CN=" + cert.Subject.CommonName
	}
	if len(p.name) > maxName {
		p.name = strings.ToValidUTF8(p.name[:maxName], "") + "…"
	}
	return p
}

// PeerOfState returns the peer of a TLS connection; nil when it showed no
// certificate that was verified.
func PeerOfState(s *tls.ConnectionState) *Peer {
	if s == nil || len(s.VerifiedChains) == 0 || len(s.PeerCertificates) == 0 {
		return nil
	}
	return peerOf(s.PeerCertificates[0])
}

// Name is what the peer is called in messages and counted under: its SPIFFE ID,
// else its first DNS name, else its common name.
func (p *Peer) Name() string { return p.name }
