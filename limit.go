package isobar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Limit is a dimension of capacity beside max_rate: a quantity of the endpoints
// of a locality that must not go above Max. The limit that allows the least
// counts.
type Limit struct {
	Metric string  `json:"metric"` // see ParseLimitMetric
	Max    float64 `json:"max"`    // of an endpoint, in the metric's own unit; > 0
	// DryRun works the limit out and shows what it would do, and no more.
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

// Reported tells whether what the limit is about comes from the endpoints, in
// ORCA reports.
func (l *Limit) Reported() bool { return l.Metric != MetricRate && l.Metric != MetricInFlight }

// Ratio tells whether the limit is about a utilization, of which 1 is all there
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
