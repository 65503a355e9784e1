package identity

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// anyPart stands in a pattern for one whole segment, label or part, whatever it is.
const anyPart = "*"

const spiffeScheme = "spiffe://"

// maxPattern bounds a pattern in bytes: as long as a SPIFFE ID may be.
const maxPattern = 2048

// Pattern matches the names in a certificate: a SPIFFE ID, in which "*" stands
// for one segment of the path, or a DNS name, in which "*" stands for one
// label. Nothing else is special, and a part of a segment can't be left open:
// spiffe://prod.example/ns/*/sa/envoy, *.clients.prod.example.
type Pattern struct {
	text   string
	spiffe bool
	domain spiffeid.TrustDomain
	parts  []string // segments of the path, or labels in lower case
}

// dnsLabel is a label of a host name. Underscores stand in names of Kubernetes
// and of services.
var dnsLabel = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)

// ErrPattern is wrapped by every error of ParsePattern and ParseLocality.
var ErrPattern = errors.New("bad pattern")

// ParsePattern reads a pattern. The trust domain of a SPIFFE ID must be written
// out.
func ParsePattern(s string) (Pattern, error) {
	if len(s) > maxPattern {
		return Pattern{}, fmt.Errorf("%w: longer than %d bytes", ErrPattern, maxPattern)
	}
	if strings.HasPrefix(s, spiffeScheme) {
		return parseSPIFFE(s)
	}
	if strings.Contains(s, "/") {
		return Pattern{}, fmt.Errorf("%w %q: neither a SPIFFE ID (spiffe://…) nor a DNS name", ErrPattern, s)
	}
	p := Pattern{text: s, parts: labels(s)}
	for _, l := range p.parts {
		if l != anyPart && !dnsLabel.MatchString(l) {
			return Pattern{}, fmt.Errorf("%w %q: %q is not a label of a DNS name; * stands for a whole one", ErrPattern, s, l)
		}
	}
	return p, nil
}

func parseSPIFFE(s string) (Pattern, error) {
	domain, path, _ := strings.Cut(strings.TrimPrefix(s, spiffeScheme), "/")
	td, err := spiffeid.TrustDomainFromString(domain)
	if err != nil {
		return Pattern{}, fmt.Errorf("%w %q: %w; the trust domain is written out", ErrPattern, s, err)
	}
	p := Pattern{text: s, spiffe: true, domain: td}
	if path == "" {
		if strings.HasSuffix(s, "/") {
			return Pattern{}, fmt.Errorf("%w %q: ends with a slash", ErrPattern, s)
		}
		return p, nil
	}
	p.parts = strings.Split(path, "/")
	for _, seg := range p.parts {
		if seg == anyPart {
			continue
		}
		if err := spiffeid.ValidatePathSegment(seg); err != nil {
			return Pattern{}, fmt.Errorf("%w %q: %w; * stands for a whole segment", ErrPattern, s, err)
		}
	}
	return p, nil
}

// labels takes a DNS name apart; a dot at its end says nothing.
func labels(name string) []string {
	return strings.Split(strings.ToLower(strings.TrimSuffix(name, ".")), ".")
}

// String gives the pattern as it was written.
func (p Pattern) String() string { return p.text }

// MarshalText gives the pattern as it was written.
func (p Pattern) MarshalText() ([]byte, error) { return []byte(p.text), nil }

// Matches tells whether one of a peer's names fits.
func (p Pattern) Matches(peer *Peer) bool {
	if p.spiffe {
		id := peer.spiffe
		return !id.IsZero() && id.TrustDomain() == p.domain && fits(p.parts, segments(id))
	}
	return slices.ContainsFunc(peer.dns, func(name string) bool { return fits(p.parts, labels(name)) })
}

func segments(id spiffeid.ID) []string {
	if id.Path() == "" {
		return nil
	}
	return strings.Split(id.Path()[1:], "/")
}

func fits(pattern, parts []string) bool {
	return slices.EqualFunc(pattern, parts, func(want, is string) bool { return want == anyPart || want == is })
}
