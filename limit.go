package isobar

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Limit is a dimension of capacity in addition to max_rate: a quantity of the endpoints of a
// locality that must not exceed Max. The strictest limit counts.
type Limit struct {
	Metric string  `json:"metric"` // see ParseLimitMetric
	Max    float64 `json:"max"`    // of an endpoint, in the metric's own unit; > 0
	// DryRun computes the limit and shows its effect, but does not apply it.
	DryRun bool `json:"dry_run,omitempty"`
}

// The metrics of limits that are not named by the endpoints themselves.
const (
	// MetricRate is requests/s of an endpoint; it needs no reports.
	MetricRate = "rate"
	// MetricInFlight is requests in progress at an endpoint, as its clients count
	// them: the time on the network is in it.
	MetricInFlight = "in_flight"
	// MetricUtilization is MetricApplication where that is reported, else MetricCPU.
	MetricUtilization = "utilization"

	MetricCPU         = "cpu_utilization"         // ORCA
	MetricMemory      = "mem_utilization"         // ORCA
	MetricApplication = "application_utilization" // ORCA
)

// NamedMetrics is what stands before the name of a metric that endpoints name
// themselves (named_metrics of ORCA).
const NamedMetrics = "named_metrics."

// MaxServices is how many services one server takes, of all owners together.
const MaxServices = 10_000

// MaxLimits is how many limits a service may have.
const MaxLimits = 8

// maxMetricName is the longest name that endpoints may give a metric, bytes.
const maxMetricName = 128

// LimitMetrics lists the metrics of limits that have a name of ours.
func LimitMetrics() []string {
	return []string{MetricRate, MetricInFlight, MetricUtilization, MetricCPU, MetricMemory, MetricApplication}
}

// ErrBadMetric is wrapped by the errors of [ParseLimitMetric].
var ErrBadMetric = errors.New("bad metric")

// ParseLimitMetric checks the metric of a limit: one of [LimitMetrics], or
// [NamedMetrics] and the name that endpoints give theirs, of 1 to 128 printable
// ASCII characters but blanks, quotes and backslashes.
func ParseLimitMetric(s string) (string, error) {
	if slices.Contains(LimitMetrics(), s) {
		return s, nil
	}
	name, named := strings.CutPrefix(s, NamedMetrics)
	switch {
	case !named:
		return "", fmt.Errorf("%w %q: want one of %s, or %sNAME", ErrBadMetric, s, strings.Join(LimitMetrics(), ", "), NamedMetrics)
	case name == "" || len(name) > maxMetricName:
		return "", fmt.Errorf("%w %q: want a name of 1 to %d characters after %s", ErrBadMetric, s, maxMetricName, NamedMetrics)
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"'`\\", r) }):
		return "", fmt.Errorf("%w %q: want printable ASCII without blanks, quotes and backslashes", ErrBadMetric, s)
	}
	return s, nil
}

// Reported reports whether what the limit is about comes from the endpoints, in
// ORCA reports.
func (l *Limit) Reported() bool { return l.Metric != MetricRate && l.Metric != MetricInFlight }

// Ratio reports whether the limit is about a utilization, of which 1 is all there
// is.
func (l *Limit) Ratio() bool { return l.Reported() && !strings.HasPrefix(l.Metric, NamedMetrics) }

// ReportedMetrics lists the ORCA metrics that clients have to pass on for the
// service to be balanced as configured, sorted, by the names that clusters use
// for them.
func (s *Service) ReportedMetrics() []string {
	var out []string
	if s.ORCA.On {
		out = append(out, MetricApplication, MetricCPU, MetricMemory)
	}
	for i := range s.Limits {
		switch l := &s.Limits[i]; {
		case l.Metric == MetricUtilization:
			out = append(out, MetricApplication, MetricCPU)
		case l.Reported():
			out = append(out, l.Metric)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Bounds of ORCA.OutOfBand.
const (
	MinORCAPeriod = time.Second
	MaxORCAPeriod = time.Hour
)

// ORCA says whether endpoints report their utilization, and how clients that weigh
// them by it hear of it. In JSON it is true, or an object such as
// {"out_of_band": "10s"}.
type ORCA struct {
	On bool
	// OutOfBand is how often an endpoint reports on a stream of its own
	// (xds.service.orca.v3.OpenRcaService); 0 = with each answer. What comes out of
	// band weighs endpoints, and is in no load report.
	OutOfBand time.Duration
}

// orcaJSON is the object that ORCA is in JSON where it has settings.
type orcaJSON struct {
	OutOfBand durationJSON `json:"out_of_band"`
}

// MarshalJSON writes true or false, or an object where there are settings.
func (o ORCA) MarshalJSON() ([]byte, error) {
	if o.On && o.OutOfBand > 0 {
		return json.Marshal(orcaJSON{durationJSON(o.OutOfBand)})
	}
	return json.Marshal(o.On)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (o *ORCA) UnmarshalJSON(b []byte) error {
	var on bool
	if err := json.Unmarshal(b, &on); err == nil {
		*o = ORCA{On: on}
		return nil
	}
	var settings orcaJSON
	if err := json.Unmarshal(b, &settings); err != nil {
		return fmt.Errorf("orca: want true, false or an object such as {\"out_of_band\": \"10s\"}: %w", err)
	}
	*o = ORCA{On: true, OutOfBand: time.Duration(settings.OutOfBand)}
	return nil
}

// CapacityTrust says what plans go by where a declared capacity and what requests
// experience differ.
type CapacityTrust string

// The kinds of trust. Empty = observed.
const (
	TrustDeclared CapacityTrust = "declared" // the declaration
	TrustObserved CapacityTrust = "observed" // what requests tell, once they tell enough
)

// Observed reports whether plans use estimates from requests.
func (t CapacityTrust) Observed() bool { return t != TrustDeclared }

// CapacityTrusts lists them all.
func CapacityTrusts() []CapacityTrust { return []CapacityTrust{TrustDeclared, TrustObserved} }

// ParseCapacityTrust reads one by its name. The error wraps [ErrInvalid].
func ParseCapacityTrust(s string) (CapacityTrust, error) {
	for _, t := range CapacityTrusts() {
		if string(t) == s {
			return t, nil
		}
	}
	return "", fmt.Errorf("%w: capacity_trust %q: want declared or observed", ErrInvalid, s)
}
