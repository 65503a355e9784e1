package config

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

// What numbers may be. The upper bounds are far beyond any fleet: a number
// above them is a mistake in units.
var (
	shiftRange = strict.Range{AboveMin: true, Max: 100, Unit: "percentage points", ZeroHint: "write mode: observe to move nothing"}
	shedRange  = strict.Range{Max: 1, BelowMax: true, LargeHint: "it is a fraction: write 0.05 for 5%"}

	ceilingRange = strict.Range{
		AboveMin: true, Max: 1, LargeHint: "it is a fraction: write 0.8 for 80%",
		ZeroHint: "set the health of its endpoints to draining to keep traffic away",
	}
	errorCostRange   = strict.Range{AboveMin: true, Max: 3.6e6, Unit: "ms"}
	serviceTimeRange = strict.Range{AboveMin: true, Max: 3.6e6, Unit: "ms"}
	rateRange        = strict.Range{AboveMin: true, Max: 1e12, Unit: "requests/s", ZeroHint: "leave it out if it is not known"}
	backgroundRange  = strict.Range{Max: 1e12, Unit: "requests/s"}
	concurrencyRange = strict.Range{AboveMin: true, Max: 1e9, Unit: "requests", ZeroHint: "leave it out if it is not known"}
	scalerRange      = strict.Range{
		AboveMin: true, Max: 100,
		ZeroHint: "set the health of its endpoints to draining to keep traffic away",
	}
	failoverRange = strict.Range{AboveMin: true, Max: 1, LargeHint: "it is a fraction: write 0.7 for 70%"}
	shareRange    = strict.Range{AboveMin: true, Max: 1e9, ZeroHint: "leave it out: a locality without weight gets traffic only when none with one is healthy"}
	weightRange   = strict.Range{Min: 1, Max: 1<<32 - 1, ZeroHint: "remove the endpoint, or set its health to draining"}
	latencyRange  = strict.Range{Max: 3.6e6, Unit: "ms"}
	perRequest    = strict.Range{AboveMin: true, Max: 1e6, Unit: "calls", ZeroHint: "remove the call"}
)

func floatField(name string, into *float64, r strict.Range) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		if x, ok := v.Float(r); ok {
			*into = x
		}
	}}
}

func boolField(name string, into *bool) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		if b, ok := v.Bool(); ok {
			*into = b
		}
	}}
}

// orcaField reads true or false, or settings, which say that it is on.
func orcaField(into *isobar.ORCA) strict.Field {
	return strict.Field{Name: "orca", Read: func(v strict.Value) {
		if !v.IsObject() {
			if on, ok := v.Bool(); ok {
				*into = isobar.ORCA{On: on}
			}
			return
		}
		into.On = true
		v.Object([]strict.Field{{Name: "out_of_band", Required: true, Read: func(v strict.Value) {
			if d, ok := v.Duration(isobar.MinORCAPeriod, isobar.MaxORCAPeriod); ok {
				into.OutOfBand = d
			}
		}}})
	}}
}

func modeField(into *isobar.Mode) strict.Field {
	return strict.Field{Name: "mode", Read: func(v strict.Value) { readMode(v, into) }}
}

// readMode reports whether there is such a mode; else the value is reported.
func readMode(v strict.Value, into *isobar.Mode) bool {
	s, ok := v.Enum(isobar.ModeFull.String(), isobar.ModeBounded.String(), isobar.ModeObserve.String(), isobar.ModeAuto.String())
	if m, err := isobar.ParseMode(s); ok && err == nil {
		*into = m
	}
	return ok
}

// trustField reads capacity_trust.
func trustField(into *isobar.CapacityTrust) strict.Field {
	return strict.Field{Name: "capacity_trust", Read: func(v strict.Value) {
		s, ok := v.Enum(string(isobar.TrustDeclared), string(isobar.TrustObserved))
		if t, err := isobar.ParseCapacityTrust(s); ok && err == nil {
			*into = t
		}
	}}
}

func policyField(into *isobar.Policy) strict.Field {
	return strict.Field{Name: "policy", Read: func(v strict.Value) { readPolicy(v, into) }}
}

// readPolicy reports whether there is such a policy; else the value is reported.
func readPolicy(v strict.Value, into *isobar.Policy) bool {
	s, ok := v.Enum(isobar.PolicyNames()...)
	if p, err := isobar.ParsePolicy(s); ok && err == nil {
		*into = p
	}
	return ok
}

// localityField reads a locality that must be given.
func localityField(name string, read func(strict.Value, isobar.Locality)) strict.Field {
	return strict.Field{Name: name, Required: true, Read: func(v strict.Value) {
		if l, ok := readLocality(v); ok {
			read(v, l)
		}
	}}
}

func readLocality(v strict.Value) (isobar.Locality, bool) {
	s, ok := v.Text()
	if !ok {
		return isobar.Locality{}, false
	}
	l, err := isobar.ParseLocality(s)
	if err != nil || !printable(s) {
		v.Errorf("write region, region/zone or region/zone/sub_zone", "%q is not a locality", s)
		return isobar.Locality{}, false
	}
	return l, true
}

// printable tells whether s holds neither control characters nor blanks: they
// can't be told apart in a log, a metric or a table.
func printable(s string) bool {
	for _, r := range s {
		if r <= ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff {
			return false
		}
	}
	return true
}
