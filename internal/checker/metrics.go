package checker

import (
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
)

type metrics struct {
	connected  prometheus.Gauge
	reconnects prometheus.Counter
	specifiers prometheus.Counter
	unchanged  prometheus.Counter
	duplicates prometheus.Counter
	refused    prometheus.Counter
	overLimit  prometheus.Counter
	reports    prometheus.Counter
	endpoints  *prometheus.GaugeVec
	changes    *prometheus.CounterVec
	probes     *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	inFlight   prometheus.Gauge
	late       prometheus.Counter
	panics     prometheus.Counter

	// Looked up once: probes are many.
	outcomes  [isobar.CheckRedis + 1][Blind + 1]prometheus.Counter
	durations [isobar.CheckRedis + 1]prometheus.Observer
	statuses  map[corev3.HealthStatus]prometheus.Gauge
}

// known are the statuses that an endpoint may have here.
var known = []corev3.HealthStatus{
	corev3.HealthStatus_HEALTHY, corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_TIMEOUT, corev3.HealthStatus_UNKNOWN,
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "isobar_checker_connected", Help: "1 while a stream to the management server is open and the server has answered.",
		}),
		reconnects: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_checker_reconnects_total", Help: "Streams that failed or could not be opened.",
		}),
		specifiers: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_checker_specifiers_total", Help: "Specifiers applied.",
		}),
		unchanged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_checker_unchanged_specifiers_total", Help: "Specifiers equal to the previous one.",
		}),
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_checker_duplicate_clusters_total", Help: "Clusters left out because the specifier already has a cluster of this name.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_checker_refused_entries_total", Help: "Invalid clusters, endpoints and settings of specifiers.",
		}),
		overLimit: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_checker_over_limit_endpoints_total", Help: "Endpoints left out above the limit.",
		}),
		reports: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_checker_reports_total", Help: "Reports sent.",
		}),
		endpoints: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "isobar_checker_endpoints", Help: "Endpoints probed, by status.",
		}, []string{"status"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isobar_checker_changes_total", Help: "Changes of status, by new status.",
		}, []string{"status"}),
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isobar_checker_probes_total", Help: "Probes, by protocol and outcome.",
		}, []string{"protocol", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "isobar_checker_probe_duration_seconds", Help: "Time of probes, by protocol.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"protocol"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "isobar_checker_probes_in_flight", Help: "Probes in progress.",
		}),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_checker_late_probes_total", Help: "Probes that began more than a second late.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_checker_panics_total", Help: "Panics in probes; each failed one probe.",
		}),
		statuses: make(map[corev3.HealthStatus]prometheus.Gauge),
	}
	for p := range m.outcomes {
		name := isobar.CheckProtocol(p).String()
		m.durations[p] = m.duration.WithLabelValues(name)
		for o := range m.outcomes[p] {
			m.outcomes[p][o] = m.probes.WithLabelValues(name, Outcome(o).String())
		}
	}
	for _, s := range known {
		m.statuses[s] = m.endpoints.WithLabelValues(statusName(s))
		m.changes.WithLabelValues(statusName(s))
	}
	return m, m.register(r)
}

func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{
		m.connected, m.reconnects, m.specifiers, m.unchanged, m.duplicates, m.refused, m.overLimit, m.reports,
		m.endpoints, m.changes, m.probes, m.duration, m.inFlight, m.late, m.panics,
	} {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("%w: metrics: %w", ErrOptions, err)
		}
	}
	return nil
}

func (m *metrics) probed(p isobar.CheckProtocol, o Outcome, took time.Duration) {
	m.outcomes[p][min(o, Blind)].Inc()
	m.durations[p].Observe(took.Seconds())
}

func (m *metrics) setEndpoints(counts map[corev3.HealthStatus]int) {
	for _, s := range known {
		m.statuses[s].Set(float64(counts[s]))
	}
}
