package hds

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/hds/convert"
)

type metrics struct {
	checkers    prometheus.Gauge
	reports     prometheus.Counter
	excess      prometheus.Counter
	rejected    *prometheus.CounterVec
	former      prometheus.Counter
	assignments *prometheus.CounterVec
	leftOut     *prometheus.CounterVec
	refused     *prometheus.CounterVec
	ended       prometheus.Counter
}

// Labels of metrics.
const (
	rejectForeign   = "not_designated"
	rejectAmbiguous = "ambiguous"

	sentFirst   = "first"
	sentAgain   = "changed"
	sentFetched = "fetched"

	leftCapability = "capability" // the checker can't do what the service needs
	leftInvalid    = "invalid"    // the service's checks break a rule of checkers
	leftSpecifier  = "specifier"  // a whole specifier did

	refusedFull     = "full"
	refusedSilent   = "silent"
	refusedMessage  = "bad_message"
	refusedStopped  = "stopped"
	refusedReplaced = "replaced"
	refusedDenied   = "denied" // by who the checker is
)

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "isobar_hds_" + name, Help: help})
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "isobar_hds_" + name, Help: help}, []string{label})
	}
	m := &metrics{
		checkers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "isobar_hds_checkers", Help: "Connected checkers."}),
		reports:  counter("reports_total", "Health reports received."),
		excess: counter("excess_messages_total",
			"Messages of checkers that come far more often than requested: their streams are read slowly."),
		rejected:    vec("rejected_entries_total", "Entries of health reports that do not count, by reason.", "reason"),
		former:      counter("former_entries_total", "Entries of health reports on endpoints that the checker had just lost."),
		assignments: vec("specifiers_total", "Specifiers given to checkers: the first of a stream, changed, or fetched.", "kind"),
		leftOut:     vec("left_out_total", "Services missing in the specifier of a checker, or whole specifiers that were not sent, by reason.", "reason"),
		ended: counter("checkers_ended_total",
			"Streams that checkers ended within 10 s of new work, without a report: their processes may have ended."),
		refused: vec("refused_streams_total", "Streams refused or ended by the server, by reason.", "reason"),
	}
	for _, c := range convert.HealthRejectCodes() {
		m.rejected.WithLabelValues(string(c))
	}
	for v, labels := range map[*prometheus.CounterVec][]string{
		m.rejected:    {rejectForeign, rejectAmbiguous},
		m.assignments: {sentFirst, sentAgain, sentFetched},
		m.leftOut:     {leftCapability, leftInvalid, leftSpecifier},
		m.refused:     {refusedFull, refusedSilent, refusedMessage, refusedStopped, refusedReplaced, refusedDenied},
	} {
		for _, l := range labels {
			v.WithLabelValues(l)
		}
	}
	if r != nil {
		r.MustRegister(m.checkers, m.reports, m.excess, m.rejected, m.former, m.assignments, m.leftOut, m.refused, m.ended)
	}
	return m
}
