package isobar

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// Locality names a place by region, zone and sub-zone, as xDS does. The zero
// value stands for a client that told no locality. Localities are comparable.
type Locality struct {
	Region, Zone, SubZone string
}

// ErrBadLocality is wrapped by every error of [ParseLocality].
var ErrBadLocality = errors.New("bad locality")

// maxNameLen bounds each part of a locality; Envoy's own node fields stay far
// below it.
const maxNameLen = 253

// A "/" within a part, which clients may send, is written so that the text can
// still be taken apart; and so is the sign that does it.
var (
	escaper   = strings.NewReplacer("%", "%25", "/", "%2F")
	unescaper = strings.NewReplacer("%25", "%", "%2F", "/", "%2f", "/")
)

// ParseLocality reads "region", "region/zone" or "region/zone/sub_zone", as
// people write them: the parts must not be empty, except that the whole text
// may be. A "/" within a part is written "%2F", and "%" then "%25".
func ParseLocality(s string) (Locality, error) {
	if s == "" {
		return Locality{}, nil
	}
	parts := strings.Split(s, "/")
	if len(parts) > 3 {
		return Locality{}, fmt.Errorf("%w %q: want region/zone/sub_zone, at most 3 parts", ErrBadLocality, s)
	}
	for _, p := range parts {
		if p == "" || strings.TrimSpace(p) != p {
			return Locality{}, fmt.Errorf("%w %q: a part is empty or has blanks around it", ErrBadLocality, s)
		}
		if len(unescaper.Replace(p)) > maxNameLen {
			return Locality{}, fmt.Errorf("%w: a part is longer than %d bytes", ErrBadLocality, maxNameLen)
		}
	}
	return fromParts(parts), nil
}

// fromParts takes 1 to 3 parts.
func fromParts(parts []string) Locality {
	l := Locality{Region: unescaper.Replace(parts[0])}
	if len(parts) > 1 {
		l.Zone = unescaper.Replace(parts[1])
	}
	if len(parts) > 2 {
		l.SubZone = unescaper.Replace(parts[2])
	}
	return l
}

// MustLocality is [ParseLocality] for constants in tests and examples; it
// panics on bad input.
func MustLocality(s string) Locality {
	l, err := ParseLocality(s)
	if err != nil {
		panic(err)
	}
	return l
}

// String gives the form that ParseLocality reads. Trailing empty parts are
// left out; the zero Locality is "".
func (l Locality) String() string {
	region, zone, sub := escaper.Replace(l.Region), escaper.Replace(l.Zone), escaper.Replace(l.SubZone)
	switch {
	case sub != "":
		return region + "/" + zone + "/" + sub
	case zone != "":
		return region + "/" + zone
	default:
		return region
	}
}

// IsZero tells whether no locality was given.
func (l Locality) IsZero() bool { return l == Locality{} }

// ZoneOnly gives the locality without its sub-zone.
func (l Locality) ZoneOnly() Locality { return Locality{Region: l.Region, Zone: l.Zone} }

// Compare orders localities by region, zone and sub-zone.
func (l Locality) Compare(o Locality) int {
	return cmp.Or(
		strings.Compare(l.Region, o.Region),
		strings.Compare(l.Zone, o.Zone),
		strings.Compare(l.SubZone, o.SubZone),
	)
}

// MarshalText makes localities readable in JSON, also as map keys.
func (l Locality) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText is the inverse of MarshalText. Unlike [ParseLocality] it takes
// every locality that a client may have sent, with empty parts and blanks.
func (l *Locality) UnmarshalText(b []byte) error {
	parts := strings.Split(string(b), "/")
	if len(parts) > 3 {
		return fmt.Errorf("%w %q: want region/zone/sub_zone, at most 3 parts", ErrBadLocality, b)
	}
	*l = fromParts(parts)
	return nil
}
