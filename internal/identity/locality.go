package identity

import (
	"fmt"

	"github.com/isobar-xds/isobar"
)

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

// String gives the pattern in the form that ParseLocality reads.
func (p LocalityPattern) String() string { return p.want.String() }

// MarshalText gives the pattern in the form that ParseLocality reads.
func (p LocalityPattern) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Matches tells whether a locality fits.
func (p LocalityPattern) Matches(l isobar.Locality) bool {
	fit := func(want, is string) bool { return want == "" || want == is || (want == anyPart && is != "") }
	return fit(p.want.Region, l.Region) && fit(p.want.Zone, l.Zone) && fit(p.want.SubZone, l.SubZone)
}
