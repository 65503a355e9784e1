package dns

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What became of a question.
const (
	resultFound  = "found"
	resultNone   = "none"
	resultFailed = "failed"
)

type metrics struct {
	questions  *prometheus.CounterVec
	names      *prometheus.GaugeVec
	oldest     prometheus.Gauge
	leftOut    prometheus.Gauge
	saveErrors prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		questions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isobar_discovery_dns_queries_total", Help: "Queries to DNS servers, by result: found, none, or failed.",
		}, []string{"result"}),
		names: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "isobar_discovery_dns_names", Help: "Names to resolve, by state.",
		}, []string{"state"}),
		oldest: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "isobar_discovery_dns_oldest_answer_timestamp_seconds", Help: "Time at which the oldest endpoints in force were resolved; 0 = there are none.",
		}),
		leftOut: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "isobar_discovery_dns_records_left_out", Help: "Records and endpoints from DNS that Isobar can't use.",
		}),
		saveErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_discovery_dns_save_errors_total", Help: "Failed writes of the endpoints from DNS to the state directory.",
		}),
	}
	for _, result := range []string{resultFound, resultNone, resultFailed} {
		m.questions.WithLabelValues(result) // a rate needs a series that begins at 0
	}
	if r != nil {
		r.MustRegister(m.questions, m.names, m.oldest, m.leftOut, m.saveErrors)
	}
	return m
}

func (m *metrics) question(result string) { m.questions.WithLabelValues(result).Inc() }

// show counts the states of a table.
func (m *metrics) show(t *table) {
	counts := make(map[State]int, len(states))
	leftOut := 0
	var oldest time.Time
	for _, n := range t.names {
		counts[n.state()]++
		leftOut += n.last.leftOut
		if len(n.endpoints) > 0 && (oldest.IsZero() || n.at.Before(oldest)) {
			oldest = n.at
		}
	}
	for _, s := range t.services {
		leftOut += s.leftOut
	}
	for _, s := range states {
		m.names.WithLabelValues(string(s)).Set(float64(counts[s]))
	}
	m.leftOut.Set(float64(leftOut))
	m.oldest.Set(0)
	if !oldest.IsZero() {
		m.oldest.Set(float64(oldest.UnixMilli()) / 1000)
	}
}
