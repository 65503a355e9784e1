package xdsclient

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	connected, updated, leftOut      prometheus.Gauge
	acks, nacks, streams, saveErrors prometheus.Counter
	states                           *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	responses := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "isobar_discovery_xds_responses_total", Help: "Responses of the other control plane, by result: ack or nack.",
	}, []string{"result"})
	m := &metrics{
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "isobar_discovery_xds_connected", Help: "1 while a stream to the other control plane is open.",
		}),
		updated: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "isobar_discovery_xds_last_update_timestamp_seconds", Help: "Time of the last accepted response of the other control plane; 0 = never.",
		}),
		leftOut: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "isobar_discovery_xds_endpoints_left_out", Help: "Endpoints that the other control plane lists and that Isobar can't use.",
		}),
		streams: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_discovery_xds_streams_total", Help: "Streams opened to the other control plane.",
		}),
		saveErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_discovery_xds_save_errors_total", Help: "Failed writes of the other control plane's listing to the state directory.",
		}),
		states: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "isobar_discovery_xds_services", Help: "Services of the other control plane, by state.",
		}, []string{"state"}),
		acks: responses.WithLabelValues("ack"), nacks: responses.WithLabelValues("nack"),
	}
	if r != nil {
		r.MustRegister(m.connected, m.updated, m.leftOut, m.streams, m.saveErrors, m.states, responses)
	}
	return m
}

// services counts the states of a table.
func (m *metrics) services(t *table) {
	counts := make(map[State]int, len(states))
	leftOut := 0
	for _, e := range t.entries {
		counts[e.state()]++
		leftOut += e.leftOut
	}
	for _, s := range states {
		m.states.WithLabelValues(string(s)).Set(float64(counts[s]))
	}
	m.leftOut.Set(float64(leftOut))
}
