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
	unmanagedRange   = strict.Range{Max: 1e12, Unit: "requests/s"}
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

// printable reports whether s holds neither control characters nor blanks: they
// can't be told apart in a log, a metric or a table.
func printable(s string) bool {
	for _, r := range s {
		if r <= ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff {
			return false
		}
	}
	return true
}

// deeper are fields that the root of a file does not have, but what stands
// beneath it: who copies a few lines from somewhere often begins there.
func deeper() []strict.Field {
	var out []strict.Field
	for _, of := range []struct {
		where string
		names []string
	}{
		{
			"it belongs to a service in `services`, or for all of them into `defaults`", []string{
				"mode", "policy", "isolation", "residency", "failover_threshold", "promote", "max_shift", "max_shed", "service_time_ms", "error_cost_ms",
				"capacity_trust", "limits",
			},
		},
		{"it belongs to a service in `services`", []string{"name", "localities", "orca", "health_checks", "checkers", "calls", "criticality", "assignment"}},
		{"it belongs to a locality of a service, or for all of them into `defaults`", []string{"ceiling"}},
		{"it belongs to a locality of a service in `services`", []string{"locality", "endpoints", "max_rate", "concurrency"}},
		{"it belongs to a scenario, which `isobar simulate` runs", []string{"title", "seed", "length", "warmup", "demand", "outages", "capacity", "price"}},
		{"it belongs to `network`", []string{"latency_ms", "egress"}},
		{"it belongs to `xds`, and another one to `admin`", []string{"listen", "tls", "insecure"}},
		{"it belongs to `xds`", []string{"identities", "admission", "max_streams", "listen_rest", "listen_2017", "clients_2017", "proxy_protocol"}},
		{"it belongs to `admin`", []string{"writable", "token_file", "hosts"}},
	} {
		for _, name := range of.names {
			out = append(out, strict.Field{Name: name, Elsewhere: of.where})
		}
	}
	return out
}

// renamedOfLocality are the former names of fields of a locality.
var renamedOfLocality = map[string]string{"background": "unmanaged_load", "scaler": "capacity_scaler"}

// renamed are fields that had other names before: the error names the new one.
func renamed(names map[string]string) []strict.Field {
	out := make([]strict.Field, 0, len(names))
	for old, now := range names {
		out = append(out, strict.Field{Name: old, Elsewhere: "its name is `" + now + "` now"})
	}
	return out
}
