package xds

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/wire"
)

type metrics struct {
	streams  *prometheus.GaugeVec
	requests *prometheus.CounterVec
	pushes   *prometheus.CounterVec
	bytes    *prometheus.CounterVec
	acks     *prometheus.CounterVec
	nacks    *prometheus.CounterVec
	stale    *prometheus.CounterVec
	failed   prometheus.Counter
	refused  *prometheus.CounterVec
}

// Reasons for which streams are refused or ended.
const (
	refusedFull    = "full"
	refusedNoPlan  = "no_plan"
	refusedRequest = "bad_request"
	refusedSilent  = "silent"
)

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "isobar_xds_" + name, Help: help}, []string{label})
	}
	m := &metrics{
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "isobar_xds_streams", Help: "Open xDS streams, by form of the protocol.",
		}, []string{"form"}),
		requests: counter("requests_total", "Requests received, by type.", "type"),
		pushes:   counter("pushes_total", "Responses sent, by type.", "type"),
		bytes:    counter("sent_bytes_total", "Bytes of responses sent, by type.", "type"),
		acks:     counter("acks_total", "Responses that clients accepted, by type.", "type"),
		nacks:    counter("nacks_total", "Responses that clients rejected, by type.", "type"),
		stale:    counter("stale_requests_total", "Requests that answer a response before the last one, by type.", "type"),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_xds_push_errors_total", Help: "Responses that could not be handed to the transport.",
		}),
		refused: counter("refused_streams_total", "Streams refused or ended by the server, by reason.", "reason"),
	}
	if r != nil {
		r.MustRegister(m.streams, m.requests, m.pushes, m.bytes, m.acks, m.nacks, m.stale, m.failed, m.refused)
	}
	for k := wire.Cluster; k <= wire.Other; k++ {
		for _, c := range []*prometheus.CounterVec{m.requests, m.pushes, m.bytes, m.acks, m.nacks, m.stale} {
			c.WithLabelValues(k.String())
		}
	}
	for _, reason := range []string{refusedFull, refusedNoPlan, refusedRequest, refusedSilent} {
		m.refused.WithLabelValues(reason)
	}
	return m
}

// form is the label of a stream.
func form(delta bool) string {
	if delta {
		return "delta"
	}
	return "sotw"
}
