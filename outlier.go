package isobar

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// OutlierField is one setting of an [OutlierDetection].
type OutlierField uint8

// The settings, named as in envoy.config.cluster.v3.OutlierDetection. Durations
// are in nanoseconds, switches are 0 or 1, numbers are what they are.
const (
	OutlierInterval OutlierField = iota
	OutlierBaseEjectionTime
	OutlierMaxEjectionTime
	OutlierMaxEjectionTimeJitter
	OutlierMaxEjectionPercent
	OutlierAlwaysEjectOneHost
	OutlierFailurePercentageThreshold
	OutlierFailurePercentageMinimumHosts
	OutlierFailurePercentageRequestVolume
	OutlierEnforcingFailurePercentage
	OutlierEnforcingFailurePercentageLocalOrigin
	OutlierConsecutive5xx
	OutlierEnforcingConsecutive5xx
	OutlierConsecutiveGatewayFailure
	OutlierEnforcingConsecutiveGatewayFailure
	OutlierSplitExternalLocalOriginErrors
	OutlierConsecutiveLocalOriginFailure
	OutlierEnforcingConsecutiveLocalOriginFailure
	OutlierSuccessRateMinimumHosts
	OutlierSuccessRateRequestVolume
	OutlierSuccessRateStdevFactor
	OutlierEnforcingSuccessRate
	OutlierEnforcingLocalOriginSuccessRate

	OutlierFields // their number
)

// OutlierKind is what the value of a setting is.
type OutlierKind uint8

// The kinds.
const (
	OutlierDuration OutlierKind = iota // 1 ms to 24 h
	OutlierCount                       // 1 to 2^32-1
	OutlierPercent                     // 0 to 100
	OutlierSwitch                      // 0 or 1
)

// OutlierSpec describes a setting.
type OutlierSpec struct {
	Name string // in configuration, JSON and Envoy's API
	Kind OutlierKind

	value int64 // default
	grpc  int64 // default for gRPC clients, where it is another one
	// enforces is the setting by which this one takes effect: it is 100 by
	// default where this one is given.
	enforces OutlierField
}

// outlierSpecs are the settings with their defaults. Envoy ejects an endpoint after five
// errors in a row, or for an interval in which it answered nearly nothing but errors,
// whatever the kind of error.
//
// Overload causes errors, too. Five errors in a row then mean that requests wait longer
// than their timeout allows, and that most of what the endpoint works on is of no use any more.
// An ejection of one or two seconds lets it work off that queue; a longer one would send its
// traffic to the next locality, overload that, and so on. So base_ejection_time is 1 s. It is
// multiplied by the ejections in a row: an endpoint that hangs or refuses connections is
// soon left for up to max_ejection_time. An overloaded one is not: it stays in use
// for longer than an interval, after which Envoy lowers the multiplier.
// Success rates relative to other endpoints eject nothing.
//
// A whole locality, even all of them, may be ejected: what remains of a locality
// that fails would draw all of its traffic. Where nearly all endpoints are
// ejected, Envoy uses all ([DefaultHealthyPanicThreshold]). gRPC has no such rule, counts
// every status but OK as a failure, NOT_FOUND too, and no errors in a row. So there at most half
// of the endpoints of a priority are ejected, never the only one, and for longer.
var outlierSpecs = [OutlierFields]OutlierSpec{
	OutlierInterval:                              {Name: "interval", value: int64(2 * time.Second)},
	OutlierBaseEjectionTime:                      {Name: "base_ejection_time", value: int64(time.Second), grpc: int64(10 * time.Second)},
	OutlierMaxEjectionTime:                       {Name: "max_ejection_time", value: int64(30 * time.Second)},
	OutlierMaxEjectionTimeJitter:                 {Name: "max_ejection_time_jitter"},
	OutlierMaxEjectionPercent:                    {Name: "max_ejection_percent", Kind: OutlierPercent, value: 100, grpc: 50},
	OutlierAlwaysEjectOneHost:                    {Name: "always_eject_one_host", Kind: OutlierSwitch},
	OutlierFailurePercentageThreshold:            {Name: "failure_percentage_threshold", Kind: OutlierPercent, value: 90},
	OutlierFailurePercentageMinimumHosts:         {Name: "failure_percentage_minimum_hosts", Kind: OutlierCount, value: 1, grpc: 2},
	OutlierFailurePercentageRequestVolume:        {Name: "failure_percentage_request_volume", Kind: OutlierCount, value: 5},
	OutlierEnforcingFailurePercentage:            {Name: "enforcing_failure_percentage", Kind: OutlierPercent, value: 100},
	OutlierEnforcingFailurePercentageLocalOrigin: {Name: "enforcing_failure_percentage_local_origin", Kind: OutlierPercent, value: 100},
	OutlierConsecutive5xx:                        {Name: "consecutive_5xx", Kind: OutlierCount, value: 5, enforces: OutlierEnforcingConsecutive5xx},
	OutlierEnforcingConsecutive5xx:               {Name: "enforcing_consecutive_5xx", Kind: OutlierPercent, value: 100},
	OutlierConsecutiveGatewayFailure:             {Name: "consecutive_gateway_failure", Kind: OutlierCount, enforces: OutlierEnforcingConsecutiveGatewayFailure},
	OutlierEnforcingConsecutiveGatewayFailure:    {Name: "enforcing_consecutive_gateway_failure", Kind: OutlierPercent},
	OutlierSplitExternalLocalOriginErrors:        {Name: "split_external_local_origin_errors", Kind: OutlierSwitch},
	OutlierConsecutiveLocalOriginFailure: {
		Name: "consecutive_local_origin_failure", Kind: OutlierCount, enforces: OutlierEnforcingConsecutiveLocalOriginFailure,
	},
	OutlierEnforcingConsecutiveLocalOriginFailure: {Name: "enforcing_consecutive_local_origin_failure", Kind: OutlierPercent},
	OutlierSuccessRateMinimumHosts:                {Name: "success_rate_minimum_hosts", Kind: OutlierCount, enforces: OutlierEnforcingSuccessRate},
	OutlierSuccessRateRequestVolume:               {Name: "success_rate_request_volume", Kind: OutlierCount, enforces: OutlierEnforcingSuccessRate},
	OutlierSuccessRateStdevFactor:                 {Name: "success_rate_stdev_factor", Kind: OutlierCount, enforces: OutlierEnforcingSuccessRate},
	OutlierEnforcingSuccessRate:                   {Name: "enforcing_success_rate", Kind: OutlierPercent},
	OutlierEnforcingLocalOriginSuccessRate:        {Name: "enforcing_local_origin_success_rate", Kind: OutlierPercent},
}

// Spec describes the setting.
func (f OutlierField) Spec() OutlierSpec { return outlierSpecs[f] }

// OutlierDetection is when clients stop using endpoints that fail them. The zero
// value is Isobar's default, which is on. Values can be compared.
type OutlierDetection struct { //nolint:recvcheck // it is written as a value, and set and read by pointer
	Off bool // clients eject nothing

	given  uint32 // a bit for each setting that is not the default
	values [OutlierFields]int64
}

// Given returns a setting, and reports whether it was set.
func (o *OutlierDetection) Given(f OutlierField) (int64, bool) {
	return o.values[f], o.given&(1<<f) != 0
}

// Set sets a setting.
func (o *OutlierDetection) Set(f OutlierField, value int64) {
	o.given |= 1 << f
	o.values[f] = value
}

// Over returns the settings of o, and those of base where o has none. One of
// which is off passes nothing on.
func (o *OutlierDetection) Over(base OutlierDetection) OutlierDetection {
	if o.Off || base.Off {
		return *o
	}
	for f := range OutlierFields {
		if v, given := o.Given(f); given {
			base.Set(f, v)
		}
	}
	return base
}

// Effective returns a setting as Envoy, or a gRPC client, is sent it, with
// defaults filled in. It reports false where a setting has neither a value nor a
// default; clients have one then.
func (o *OutlierDetection) Effective(f OutlierField, grpc bool) (int64, bool) {
	if v, given := o.Given(f); given {
		return v, true
	}
	spec := &outlierSpecs[f]
	switch {
	case f == OutlierMaxEjectionTime: // Envoy refuses one that is shorter
		base, _ := o.Effective(OutlierBaseEjectionTime, grpc)
		return max(spec.value, base), true
	case o.enforced(f):
		return 100, true
	case grpc && spec.grpc != 0:
		return spec.grpc, true
	}
	return spec.value, spec.value != 0 || spec.Kind == OutlierPercent
}

// enforced reports whether a setting is given that takes effect by this one.
func (o *OutlierDetection) enforced(f OutlierField) bool {
	for other := range OutlierFields {
		if _, given := o.Given(other); given && outlierSpecs[other].enforces == f && f != 0 {
			return true
		}
	}
	return false
}

// outlierOff is what JSON and configuration say for no outlier detection.
const outlierOff = "none"

// MarshalJSON writes the settings as configuration has them: "none", or an
// object of those that are not the default.
func (o OutlierDetection) MarshalJSON() ([]byte, error) {
	if o.Off {
		return json.Marshal(outlierOff)
	}
	out := make(map[string]any, OutlierFields)
	for f := range OutlierFields {
		v, given := o.Given(f)
		if !given {
			continue
		}
		switch spec := f.Spec(); spec.Kind {
		case OutlierDuration:
			out[spec.Name] = durationJSON(v)
		case OutlierSwitch:
			out[spec.Name] = v != 0
		case OutlierCount, OutlierPercent:
			out[spec.Name] = v
		}
	}
	return json.Marshal(out) // sorted by name
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (o *OutlierDetection) UnmarshalJSON(b []byte) error {
	*o = OutlierDetection{}
	var text string
	if json.Unmarshal(b, &text) == nil {
		if text != outlierOff {
			return fmt.Errorf("outlier_detection: %.100q, want %q or settings", text, outlierOff)
		}
		o.Off = true
		return nil
	}
	var in map[string]json.RawMessage
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	for f := range OutlierFields {
		raw, given := in[f.Spec().Name]
		if !given {
			continue
		}
		v, err := f.Spec().read(raw)
		if err != nil {
			return fmt.Errorf("outlier_detection.%s: %w", f.Spec().Name, err)
		}
		o.Set(f, v)
	}
	return nil
}

func (s OutlierSpec) read(raw json.RawMessage) (int64, error) {
	switch s.Kind {
	case OutlierDuration:
		var d durationJSON
		err := json.Unmarshal(raw, &d)
		return int64(d), err
	case OutlierSwitch:
		var on bool
		err := json.Unmarshal(raw, &on)
		if on {
			return 1, err
		}
		return 0, err
	case OutlierCount, OutlierPercent:
	}
	var n uint32
	err := json.Unmarshal(raw, &n)
	return int64(n), err
}

// Bounds of the settings, which readers of configuration check.
const (
	MinOutlierDuration = time.Millisecond
	MaxOutlierDuration = 24 * time.Hour
	MaxOutlierCount    = math.MaxUint32
)
