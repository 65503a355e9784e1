package replica

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/replica/group"
)

type metrics struct {
	engineErrors, refused, rejected, published, sent, received, observed, tooLarge prometheus.Counter
	bytes                                                                          prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer, r *Replica) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		engineErrors: counter("isobar_replica_engine_errors_total", "Requests to the election engine that failed."),
		refused:      counter("isobar_replica_plans_refused_total", "Plans refused from other replicas."),
		rejected:     counter("isobar_replica_messages_refused_total", "Connections and messages refused from other replicas."),
		published:    counter("isobar_replica_plans_published_total", "Plans that this replica published to its group."),
		sent:         counter("isobar_replica_plan_bytes_sent_total", "Bytes of plans sent to other replicas."),
		received:     counter("isobar_replica_plan_bytes_received_total", "Bytes of plans received from other replicas."),
		observed: counter("isobar_replica_observation_bytes_sent_total",
			"Bytes of load reports, subscriptions and health reports that this replica sent to the leader."),
		tooLarge: counter("isobar_replica_observations_too_large_total",
			"Messages with a load report or with health reports that were too large to be sent to the leader, and were left out."),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "isobar_replica_plan_bytes", Help: "Size of the plan that this replica published last, in bytes.",
		}),
	}
	if registerer == nil {
		return m
	}
	gauge := func(name, help string, value func(v group.View) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			r.mu.Lock()
			defer r.mu.Unlock()
			return value(r.node.View(r.clock()))
		})
	}
	one := func(yes bool) float64 {
		if yes {
			return 1
		}
		return 0
	}
	registerer.MustRegister(m.engineErrors, m.refused, m.rejected, m.published, m.sent, m.received, m.observed, m.tooLarge, m.bytes,
		gauge("isobar_replica_leads", "1 while this replica leads its group.", func(v group.View) float64 { return one(v.Role == group.Leading) }),
		gauge("isobar_replica_epoch", "Newest epoch that this replica knows.", func(v group.View) float64 { return float64(v.Newest.Epoch) }),
		gauge("isobar_replica_live", "Replicas from which this one receives messages, itself included.", func(v group.View) float64 { return float64(v.Reaches) }),
		gauge("isobar_replica_engine_reached", "1 while the election engine answers.", func(v group.View) float64 { return one(v.Engine) }),
		gauge("isobar_replica_engine_behind", "1 while the election engine has an older claim than replicas saw: it was restored from a backup.",
			func(v group.View) float64 { return one(v.Behind) }),
	)
	return m
}

func sortReplicas(list []MemberStatus) {
	slices.SortFunc(list, func(a, b MemberStatus) int { return cmp.Compare(a.Name, b.Name) })
}
