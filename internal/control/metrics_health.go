package control

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/health"
)

// healthCollector shows what checkers found, as of the last time that the loop
// looked.
type healthCollector struct {
	current func() *healthView
}

var (
	descEndpoints  = desc("isobar_health_endpoints", "Endpoints that checkers probe, by what is believed of them.", []string{"service", "state"})
	descVotes      = desc("isobar_health_votes", "Votes of designated checkers: fresh, stale, not counted yet, or none.", []string{"service", "state"})
	descAlarms     = desc("isobar_health_mass_flips_held", "Services of which so much was voted down at once that it is not believed.", nil)
	descShortfalls = desc("isobar_health_endpoints_short_of_checkers", "Endpoints with fewer checkers, or in fewer zones, than asked for.", nil)
)

// Describe implements prometheus.Collector.
func (c *healthCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descEndpoints, descVotes, descAlarms, descShortfalls} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *healthCollector) Collect(ch chan<- prometheus.Metric) {
	v := c.current()
	if v == nil {
		return
	}
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	gauge(descAlarms, v.alarms)
	gauge(descShortfalls, v.shortfalls)
	//isobar:sorted each summary has labels of its own
	for service, s := range v.summaries {
		for state, n := range endpointStates(&s) {
			gauge(descEndpoints, n, service, state)
		}
		for state, n := range voteStates(&s) {
			gauge(descVotes, n, service, state)
		}
	}
}

func endpointStates(s *health.Summary) map[string]int {
	return map[string]int{
		"healthy": s.Healthy, "degraded": s.Degraded, "down": s.Down, "unknown": s.Unknown,
		"frozen": s.Frozen, "divided": s.Divided, "pending": s.Pending, "held": s.Held,
	}
}

func voteStates(s *health.Summary) map[string]int {
	return map[string]int{"fresh": s.FreshVotes, "stale": s.StaleVotes, "uncounted": s.UncountedVotes, "none": s.NoVotes}
}
