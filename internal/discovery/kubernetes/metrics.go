package kubernetes

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	watches    *prometheus.GaugeVec
	services   *prometheus.GaugeVec
	endpoints  *prometheus.GaugeVec
	failures   *prometheus.CounterVec
	saveErrors prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		watches: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "isobar_discovery_kubernetes_watches",
			Help: "Watches of resources of the Kubernetes cluster, by state: listed, waiting, failing, or without (Nodes that may not be read).",
		}, []string{"state"}),
		services: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "isobar_discovery_kubernetes_services", Help: "Services of the cluster, one for each port, by state.",
		}, []string{"state"}),
		endpoints: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "isobar_discovery_kubernetes_endpoints", Help: "Endpoints of the cluster, by condition: ready, draining, held, not_ready, or left_out.",
		}, []string{"condition"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isobar_discovery_kubernetes_failures_total", Help: "Requests to the Kubernetes API that failed, by resource.",
		}, []string{"resource"}),
		saveErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_discovery_kubernetes_save_errors_total", Help: "Failed writes of the endpoints from Kubernetes to the state directory.",
		}),
	}
	for _, resource := range []string{"services", "endpointslices.discovery.k8s.io", "nodes", policyResource, statusResource} {
		m.failures.WithLabelValues(resource) // a rate needs a series that begins at 0
	}
	if r != nil {
		r.MustRegister(m.watches, m.services, m.endpoints, m.failures, m.saveErrors)
	}
	return m
}

// show counts what a provider has, whose lock is held.
func (m *metrics) show(p *Provider) {
	counts := make(map[State]int, len(states))
	var ready, draining, held, notReady, leftOut int
	if p.cfg != nil {
		for _, name := range p.names() {
			e := p.entries[name]
			counts[p.state(e)]++
			if e != nil {
				ready += e.Counts.Ready
				draining += e.Counts.Draining
				held += e.Counts.Held
				notReady += e.Counts.NotReady
				leftOut += e.Counts.LeftOut
			}
		}
	}
	for _, s := range states {
		m.services.WithLabelValues(string(s)).Set(float64(counts[s]))
	}
	for condition, n := range map[string]int{"ready": ready, "draining": draining, "held": held, "not_ready": notReady, "left_out": leftOut} {
		m.endpoints.WithLabelValues(condition).Set(float64(n))
	}
	m.showWatches(p)
}

// showWatches counts watches; before the credentials can be read there is one.
func (m *metrics) showWatches(p *Provider) {
	watches := map[WatchState]int{WatchListed: 0, WatchWaiting: 0, WatchFailing: 0, WatchWithout: 0}
	switch {
	case p.cfg == nil:
	case p.session == nil:
		watches[WatchWaiting]++
	case p.session.failure != "":
		watches[WatchFailing]++
	default:
		for _, f := range p.session.feeds {
			watches[f.state()]++
		}
	}
	for state, n := range watches {
		m.watches.WithLabelValues(string(state)).Set(float64(n))
	}
}
