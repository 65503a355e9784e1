package discovery

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
)

type metrics struct {
	services  *prometheus.GaugeVec
	conflicts prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		services: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "isobar_discovery_services", Help: "Services in force, by owner.",
		}, []string{"owner"}),
		conflicts: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "isobar_discovery_conflicts",
			Help: "Services of the file, of another control plane, of DNS or of Kubernetes that are not in force because another owner has the name.",
		}),
	}
	if r != nil {
		r.MustRegister(m.services, m.conflicts)
	}
	return m
}

func (m metrics) show(objects []*isobar.Object, conflicts int) {
	count := map[string]int{isobar.OwnerFile: 0, isobar.OwnerAPI: 0, isobar.OwnerXDS: 0, isobar.OwnerDNS: 0, isobar.OwnerKubernetes: 0}
	for i := range objects {
		count[objects[i].Owner]++
	}
	for owner, n := range count {
		m.services.WithLabelValues(owner).Set(float64(n))
	}
	m.conflicts.Set(float64(conflicts))
}
