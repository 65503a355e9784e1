package admin

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts requests by route, which bounds the labels.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	streams  prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isobar_admin_requests_total",
			Help: "Requests to the admin interface by route and status code.",
		}, []string{"route", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "isobar_admin_request_duration_seconds",
			Help:    "Time to answer a request to the admin interface; writes wait for the plan that contains them.",
			Buckets: []float64{.001, .005, .025, .1, .25, 1, 2.5, 5, 10},
		}, []string{"route"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "isobar_admin_streams",
			Help: "Readers of GET /v1/stream, such as open consoles.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.streams} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// wrap counts and times what h answers.
func (m *metrics) wrap(route string, h http.HandlerFunc) http.Handler {
	counted := m.count(route, h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		counted.ServeHTTP(w, r)
		m.duration.WithLabelValues(route).Observe(time.Since(start).Seconds())
	})
}

// count counts what h answers. How long an answer takes that goes on until the
// reader leaves says nothing of the server.
func (m *metrics) count(route string, h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w, code: http.StatusOK}
		h(rec, r)
		m.requests.WithLabelValues(route, strconv.Itoa(rec.code)).Inc()
	})
}

// recorder remembers the status code.
type recorder struct {
	http.ResponseWriter

	code int
}

// WriteHeader remembers and passes on.
func (r *recorder) WriteHeader(code int) {
	r.code = code
	r.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
