package lrs

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/lrs/reader"
)

type metrics struct {
	streams   prometheus.Gauge
	reports   prometheus.Counter
	rejected  *prometheus.CounterVec
	unknown   prometheus.Counter
	foreign   prometheus.Counter
	merged    prometheus.Counter
	excess    prometheus.Counter
	overflow  prometheus.Counter
	lost      prometheus.Counter
	responses *prometheus.CounterVec
	refused   *prometheus.CounterVec
}

// Labels of metrics.
const (
	sentFirst  = "first"
	sentAgain  = "changed"
	sentClosed = "closed" // a client that reads one configuration was made to come back

	refusedFull    = "full"
	refusedSilent  = "silent"
	refusedMessage = "bad_message"
	refusedStopped = "stopped"
	refusedDenied  = "denied" // by the identity or address of the client
)

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "isobar_lrs_" + name, Help: help})
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "isobar_lrs_" + name, Help: help}, []string{label})
	}
	m := &metrics{
		streams:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "isobar_lrs_streams", Help: "Open load reporting streams."}),
		reports:   counter("reports_total", "Load reports received."),
		rejected:  vec("rejected_entries_total", "Implausible entries of load reports that were ignored, by reason.", "reason"),
		unknown:   counter("unknown_service_entries_total", "Entries of load reports on services that are not configured."),
		foreign:   counter("unsubscribed_entries_total", "Entries on services to which no client in the locality of the reporter subscribes."),
		merged:    counter("merged_reports_total", "Load reports merged with the previous one because the collector was slow."),
		excess:    counter("excess_reports_total", "Load reports ignored because the client reports far too often."),
		overflow:  counter("overflow_reports_total", "Load reports ignored because the reports that wait for the next tick use all of their memory."),
		lost:      counter("lost_windows_total", "Windows of closed streams discarded because the collector was blocked."),
		responses: vec("configurations_total", "Configurations given to clients: first, changed, or closed for clients that read one only.", "kind"),
		refused:   vec("refused_streams_total", "Streams refused or ended by the server, by reason.", "reason"),
	}
	for _, c := range reader.RejectCodes() {
		m.rejected.WithLabelValues(string(c))
	}
	for _, kind := range []string{sentFirst, sentAgain, sentClosed} {
		m.responses.WithLabelValues(kind)
	}
	for _, reason := range []string{refusedFull, refusedSilent, refusedMessage, refusedStopped, refusedDenied} {
		m.refused.WithLabelValues(reason)
	}
	if r != nil {
		r.MustRegister(m.streams, m.reports, m.rejected, m.unknown, m.foreign, m.merged, m.excess, m.overflow, m.lost, m.responses, m.refused)
	}
	return m
}
