package checker

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// nameMatcher wants a subject alternative name of one kind.
type nameMatcher struct {
	kind  tlsv3.SubjectAltNameMatcher_SanType // unspecified: any kind
	match func(string) bool
}

func newNames(v *tlsv3.CertificateValidationContext) ([]nameMatcher, error) {
	var out []nameMatcher
	for _, m := range v.GetMatchTypedSubjectAltNames() {
		if m.GetSanType() == tlsv3.SubjectAltNameMatcher_SAN_TYPE_UNSPECIFIED || m.GetSanType() > tlsv3.SubjectAltNameMatcher_IP_ADDRESS {
			return nil, errors.New("match_typed_subject_alt_names: want san_type EMAIL, DNS, URI or IP_ADDRESS")
		}
		match, err := newMatcher(m.GetMatcher())
		if err != nil {
			return nil, fmt.Errorf("match_typed_subject_alt_names: %w", err)
		}
		out = append(out, nameMatcher{kind: m.GetSanType(), match: match})
	}
	for _, m := range v.GetMatchSubjectAltNames() { //nolint:staticcheck // servers still send it
		match, err := newMatcher(m)
		if err != nil {
			return nil, fmt.Errorf("match_subject_alt_names: %w", err)
		}
		out = append(out, nameMatcher{match: match})
	}
	return out, nil
}

func (n *nameMatcher) matches(c *x509.Certificate) bool {
	wants := func(kind tlsv3.SubjectAltNameMatcher_SanType) bool {
		return n.kind == kind || n.kind == tlsv3.SubjectAltNameMatcher_SAN_TYPE_UNSPECIFIED
	}
	var names []string
	if wants(tlsv3.SubjectAltNameMatcher_DNS) {
		names = append(names, c.DNSNames...)
	}
	if wants(tlsv3.SubjectAltNameMatcher_EMAIL) {
		names = append(names, c.EmailAddresses...)
	}
	if wants(tlsv3.SubjectAltNameMatcher_URI) {
		for _, u := range c.URIs {
			names = append(names, u.String())
		}
	}
	if wants(tlsv3.SubjectAltNameMatcher_IP_ADDRESS) {
		for _, ip := range c.IPAddresses {
			names = append(names, ip.String())
		}
	}
	return slices.ContainsFunc(names, n.match)
}
