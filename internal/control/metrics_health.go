package control

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/health"
)

// healthCollector shows the health of endpoints, as of the loop's last look.
type healthCollector struct {
	current func() *healthView
}

var (
	descEndpoints = desc("isobar_health_endpoints", "Endpoints that checkers probe, by verdict.", []string{"service", "state"})
	descVotes     = desc("isobar_health_votes", "Votes of designated checkers: fresh, stale, not counted yet, or none.", []string{"service", "state"})
	descAlarms    = desc("isobar_health_mass_flips_held", "Services with a held mass failure.", nil)
	descOldest    = desc("isobar_health_oldest_verdict_age_seconds",
		"Time since enough fresh votes last confirmed a verdict, for the verdict where this is longest.", perService)
	descSilent = desc("isobar_health_checkers_silent",
		"Connected checkers that were assigned endpoints and do not report; Isobar assigns their endpoints to others.", nil)
	descSuspects = desc("isobar_health_suspected_services",
		"Services whose checks may end their checkers: Isobar gives each to one checker at a time.", nil)
	descShortfalls = desc("isobar_health_endpoints_short_of_checkers", "Endpoints with fewer checkers, or in fewer zones, than configured.", nil)
)

// Describe implements prometheus.Collector.
func (c *healthCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descEndpoints, descVotes, descAlarms, descSilent, descSuspects, descShortfalls, descOldest} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *healthCollector) Collect(ch chan<- prometheus.Metric) {
	v := c.current()
	if v == nil {
		return
	}
	gauge := func(d *prometheus.Desc, n float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
	}
	now := time.Now()
	gauge(descAlarms, float64(v.alarms))
	gauge(descSilent, float64(v.silent))
	gauge(descSuspects, float64(v.suspects))
	gauge(descShortfalls, float64(v.shortfalls))
	//isobar:sorted each summary has labels of its own
	for service, s := range v.summaries {
		if !s.OldestConfirmed.IsZero() { // else there is no verdict that could be old
			gauge(descOldest, max(0, now.Sub(s.OldestConfirmed).Seconds()), service)
		}
		for state, n := range endpointStates(&s) {
			gauge(descEndpoints, float64(n), service, state)
		}
		for state, n := range voteStates(&s) {
			gauge(descVotes, float64(n), service, state)
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
