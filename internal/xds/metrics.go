package xds

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/xds/resource"
)

type metrics struct {
	streams  *prometheus.GaugeVec
	requests byKind
	pushes   byKind
	bytes    byKind
	acks     byKind
	nacks    byKind
	stale    byKind
	missing  byKind
	failed   prometheus.Counter
	refused  *prometheus.CounterVec
}

// byKind is a counter for each kind of resource, looked up once: they count
// every request and response.
type byKind [resource.Other + 1]prometheus.Counter

// Reasons for which streams are refused or ended.
const (
	refusedFull    = "full"
	refusedNoPlan  = "no_plan"
	refusedRequest = "bad_request"
	refusedSilent  = "silent"
	refusedDenied  = "denied" // by who the client is
)

func newMetrics(r prometheus.Registerer, names *nameBudget) *metrics {
	counter := func(name, help string, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "isobar_xds_" + name, Help: help}, []string{label})
	}
	var vectors []prometheus.Collector
	vec := func(name, help string) (out byKind) {
		v := counter(name, help, "type")
		vectors = append(vectors, v)
		for k := range out {
			out[k] = v.WithLabelValues(resource.Kind(k).String())
		}
		return out
	}
	m := &metrics{
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "isobar_xds_streams", Help: "Open xDS streams, by variant of the protocol: sotw or delta.",
		}, []string{"variant"}),
		requests: vec("requests_total", "Requests received, by type."),
		pushes:   vec("pushes_total", "Responses sent, by type."),
		bytes:    vec("sent_bytes_total", "Bytes of responses sent, by type."),
		acks:     vec("acks_total", "Responses that clients accepted, by type."),
		nacks:    vec("nacks_total", "Responses that clients rejected, by type."),
		stale:    vec("stale_requests_total", "Requests that answer a response before the last one, by type."),
		missing:  vec("missing_names_total", "Subscriptions to names that no service has, by type."),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_xds_push_errors_total", Help: "Responses that gRPC could not send.",
		}),
		refused: counter("refused_streams_total", "Streams refused or ended by the server, by reason.", "reason"),
	}
	if r != nil {
		r.MustRegister(m.streams, m.failed, m.refused)
		r.MustRegister(vectors...)
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "isobar_xds_name_bytes", Help: "Estimated memory, in bytes, for the names that open streams subscribe to.",
		}, func() float64 { return float64(names.used.Load()) }))
	}
	for _, reason := range []string{refusedFull, refusedNoPlan, refusedRequest, refusedSilent, refusedDenied} {
		m.refused.WithLabelValues(reason)
	}
	return m
}

// apiRest stands for clients without a stream.
const apiRest = "rest"

// apiLabel is the label of a stream.
func apiLabel(delta bool) string {
	if delta {
		return "delta"
	}
	return "sotw"
}
