// Package identity knows who is at the other end of a connection and keeps the
// certificates and tokens that prove it: the TLS settings of a listener, reread
// when their files change, the names in a client's certificate, and the rules
// that bind names to roles and localities.
package identity

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/isobar-xds/isobar"
)

// Rule gives those whom its pattern matches roles, in some localities.
type Rule struct {
	Match      Pattern
	Roles      Role
	Localities []LocalityPattern // none = any
}

// Policy is a list of rules. A peer has what any of them gives it. An empty
// policy allows everything to everyone.
type Policy []Rule

// Reasons for which a policy refuses. Every error of a policy wraps one.
var (
	ErrAnonymous = errors.New("no client certificate was presented")
	ErrUnknown   = errors.New("no identity in the configuration matches")
	ErrRole      = errors.New("role not allowed")
	ErrLocality  = errors.New("locality not allowed")
)

// CheckRole reports whether a peer, which may be nil, may act in a role
// somewhere.
func (p Policy) CheckRole(peer *Peer, role Role) error {
	if len(p) == 0 {
		return nil
	}
	if peer == nil {
		return fmt.Errorf("%w, and role %s asks for one", ErrAnonymous, role)
	}
	var has Role
	matched := false
	for i := range p {
		if p[i].Match.Matches(peer) {
			matched = true
			has |= p[i].Roles
		}
	}
	switch {
	case !matched:
		return fmt.Errorf("%w %s, which asks for role %s", ErrUnknown, peer.name, role)
	case !has.Has(role):
		return fmt.Errorf("%s may not act as %s: %w, it has %s", peer.name, role, ErrRole, has)
	}
	return nil
}

// Check reports whether a peer may act in a role in a locality.
func (p Policy) Check(peer *Peer, role Role, l isobar.Locality) error {
	if err := p.CheckRole(peer, role); err != nil || len(p) == 0 {
		return err
	}
	var allowed []string
	for i := range p {
		r := &p[i]
		if !r.Roles.Has(role) || !r.Match.Matches(peer) {
			continue
		}
		if len(r.Localities) == 0 || slices.ContainsFunc(r.Localities, func(x LocalityPattern) bool { return x.Matches(l) }) {
			return nil
		}
		for _, x := range r.Localities {
			allowed = append(allowed, x.String())
		}
	}
	return fmt.Errorf("%s may not act as %s in locality %.300q: %w, it may in %s", peer.name, role, l.String(), ErrLocality, shown(allowed))
}

// shown bounds a list in a message.
func shown(list []string) string {
	const most = 10
	if len(list) > most {
		return strings.Join(list[:most], ", ") + fmt.Sprintf(" and %d more", len(list)-most)
	}
	return strings.Join(list, ", ")
}

// Role is what a client may do.
type Role uint8

// The roles.
const (
	RoleClient  Role = 1 << iota // discovery and load reports
	RoleChecker                  // health discovery
	RoleAdmin                    // client status, channelz, reflection
)

// roleNames are in the order of display.
var roleNames = []struct {
	role Role
	name string
}{{RoleClient, "client"}, {RoleChecker, "checker"}, {RoleAdmin, "admin"}}

// ParseRole reads the name of one role.
func ParseRole(s string) (Role, error) {
	for _, r := range roleNames {
		if r.name == s {
			return r.role, nil
		}
	}
	return 0, fmt.Errorf("%q is not a role: want client, checker or admin", s)
}

// RoleNames lists the names that ParseRole takes.
func RoleNames() []string {
	out := make([]string, len(roleNames))
	for i, r := range roleNames {
		out[i] = r.name
	}
	return out
}

// Has reports whether all roles of o are among those of r.
func (r Role) Has(o Role) bool { return r&o == o }

// MarshalText lists the roles, with commas between them.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String lists the roles, with commas between them.
func (r Role) String() string {
	var names []string
	for _, x := range roleNames {
		if r.Has(x.role) {
			names = append(names, x.name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// LocalityPattern matches localities: region, region/zone or
// region/zone/sub_zone. "*" stands for any one part that is not empty; parts
// that are left out may be anything, so us-east and us-east/b hold all that is
// in them.
type LocalityPattern struct {
	want isobar.Locality
}

// ParseLocality reads a pattern of localities. A part must not be empty.
func ParseLocality(s string) (LocalityPattern, error) {
	l, err := isobar.ParseLocality(s)
	if err == nil && l.IsZero() {
		err = fmt.Errorf("%w: empty", isobar.ErrBadLocality)
	}
	if err != nil {
		return LocalityPattern{}, fmt.Errorf("%w %q: want region, region/zone or region/zone/sub_zone, * for any one part", ErrPattern, s)
	}
	return LocalityPattern{want: l}, nil
}

// String returns the pattern in the form that ParseLocality reads.
func (p LocalityPattern) String() string { return p.want.String() }

// MarshalText returns the pattern in the form that ParseLocality reads.
func (p LocalityPattern) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Matches reports whether a locality fits.
func (p LocalityPattern) Matches(l isobar.Locality) bool {
	fit := func(want, is string) bool { return want == "" || want == is || (want == anyPart && is != "") }
	return fit(p.want.Region, l.Region) && fit(p.want.Zone, l.Zone) && fit(p.want.SubZone, l.SubZone)
}

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

// String returns the pattern as it was written.
func (p Pattern) String() string { return p.text }

// MarshalText returns the pattern as it was written.
func (p Pattern) MarshalText() ([]byte, error) { return []byte(p.text), nil }

// Matches reports whether one of a peer's names fits.
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
