package isobar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Isolation says whether the clients of a region may leave it.
type Isolation uint8

// The isolations.
const (
	// IsolationNone lets traffic go wherever the policy says.
	IsolationNone Isolation = iota
	// IsolationNearest keeps traffic in the nearest region that has healthy
	// capacity, however full it is.
	IsolationNearest
	// IsolationStrict never lets traffic leave the client's own region.
	IsolationStrict
)

// ErrBadIsolation is wrapped by the errors of [ParseIsolation].
var ErrBadIsolation = errors.New("bad isolation")

var isolationNames = []string{"none", "nearest", "strict"}

// IsolationNames lists the names that [ParseIsolation] reads, the default first.
func IsolationNames() []string { return slices.Clone(isolationNames) }

// ParseIsolation reads an isolation's name.
func ParseIsolation(s string) (Isolation, error) {
	if i := slices.Index(isolationNames, s); i >= 0 {
		return Isolation(i), nil //nolint:gosec // a handful
	}
	return IsolationNone, fmt.Errorf("%w %q: want one of %s", ErrBadIsolation, s, strings.Join(isolationNames, ", "))
}

// String returns the isolation's name.
func (i Isolation) String() string {
	if int(i) < len(isolationNames) {
		return isolationNames[i]
	}
	return fmt.Sprintf("isolation(%d)", uint8(i))
}

// MarshalText returns the name, for JSON.
func (i Isolation) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (i *Isolation) UnmarshalText(b []byte) error {
	v, err := ParseIsolation(string(b))
	if err != nil {
		return err
	}
	*i = v
	return nil
}

// LocalityGlob matches localities part by part: region, region/zone or
// region/zone/sub_zone, in each of which "*" stands for any characters. Parts
// that are left out may be anything.
type LocalityGlob struct{ parts Locality }

// ErrBadGlob is wrapped by the errors of [ParseLocalityGlob].
var ErrBadGlob = errors.New("bad pattern of localities")

// ParseLocalityGlob reads a pattern such as "eu-*" or "us-east/b".
func ParseLocalityGlob(s string) (LocalityGlob, error) {
	l, err := ParseLocality(s)
	if err != nil || l.IsZero() {
		return LocalityGlob{}, fmt.Errorf("%w %q: want region, region/zone or region/zone/sub_zone, * for any characters", ErrBadGlob, s)
	}
	for _, part := range []string{l.Region, l.Zone, l.SubZone} {
		if strings.ContainsAny(part, `?[]\`) {
			return LocalityGlob{}, fmt.Errorf("%w %q: only * is a wildcard", ErrBadGlob, s)
		}
	}
	return LocalityGlob{parts: l}, nil
}

// Matches reports whether a locality fits. A part that is empty fits "*" alone,
// so only a pattern that begins so matches clients that told no locality.
func (g LocalityGlob) Matches(l Locality) bool {
	fit := func(want, is string) bool { return want == "" || matchPart(want, is) }
	return fit(g.parts.Region, l.Region) && fit(g.parts.Zone, l.Zone) && fit(g.parts.SubZone, l.SubZone)
}

// matchPart matches s with a pattern in which "*" stands for any characters.
func matchPart(pattern, s string) bool {
	pieces := strings.Split(pattern, "*")
	first, last := pieces[0], pieces[len(pieces)-1]
	if len(pieces) == 1 {
		return s == pattern
	}
	if len(s) < len(first)+len(last) || !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, piece := range pieces[1 : len(pieces)-1] {
		_, after, found := strings.Cut(s, piece)
		if !found {
			return false
		}
		s = after
	}
	return true
}

// String returns the form that ParseLocalityGlob reads.
func (g LocalityGlob) String() string { return g.parts.String() }

// MarshalText returns the form that ParseLocalityGlob reads.
func (g LocalityGlob) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (g *LocalityGlob) UnmarshalText(b []byte) error {
	v, err := ParseLocalityGlob(string(b))
	if err != nil {
		return err
	}
	*g = v
	return nil
}

// Residency lists the localities to which requests of some clients may go; they go nowhere else,
// even if no listed locality is usable.
type Residency struct {
	From  LocalityGlob   `json:"from"`
	Allow []LocalityGlob `json:"allow"`
}

// Allows reports whether clients in from may send to a locality.
func (r *Residency) Allows(from, to Locality) bool {
	return !r.From.Matches(from) || slices.ContainsFunc(r.Allow, func(g LocalityGlob) bool { return g.Matches(to) })
}

// Allows reports whether the service's isolation and residency let clients in one
// locality send to another. Clients that told no locality are in no region that
// they could leave.
func (s *Service) Allows(from, to Locality) bool {
	if s.Isolation == IsolationStrict && !from.IsZero() && from.Region != to.Region {
		return false
	}
	for i := range s.Residency {
		if !s.Residency[i].Allows(from, to) {
			return false
		}
	}
	return true
}
