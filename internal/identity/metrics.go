package identity

import "github.com/prometheus/client_golang/prometheus"

// Results of reading files again.
const (
	resultOK      = "ok"
	resultRefused = "refused"
)

// Metrics of certificates and tokens; all listeners share one.
type Metrics struct {
	expiry  *prometheus.GaugeVec
	good    *prometheus.GaugeVec
	reloads *prometheus.CounterVec
}

// NewMetrics makes the metrics; nil exports none.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "isobar_tls_certificate_expiry_seconds",
			Help: "Earliest expiry of the certificate chain in force, in seconds since 1970, by listener.",
		}, []string{"listener"}),
		good: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "isobar_tls_files_good",
			Help: "0 while the files on disk have errors and their previous content is in force, by listener and kind of file.",
		}, []string{"listener", "what"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isobar_tls_reloads_total",
			Help: "Reloads of changed certificate and token files, by listener, kind of file and result.",
		}, []string{"listener", "what", "result"}),
	}
	if r != nil {
		r.MustRegister(m.expiry, m.good, m.reloads)
	}
	return m
}
