package store

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	registerer           prometheus.Registerer
	recoveries, failures prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		registerer: r,
		recoveries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_store_recoveries_total", Help: "Lost or damaged state files that Isobar replaced by the previous version.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_store_write_failures_total", Help: "Failed writes of state.",
		}),
	}
	if r != nil {
		r.MustRegister(m.recoveries, m.failures)
	}
	return m
}

func (m metrics) unregister() {
	if m.registerer != nil {
		m.registerer.Unregister(m.recoveries)
		m.registerer.Unregister(m.failures)
	}
}
