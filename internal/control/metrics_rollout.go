package control

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/plan"
)

// collectRollout collects the rollout state of a service: its mode, its score and whether its
// shares oscillate.
func collectRollout(ch chan<- prometheus.Metric, s *plan.Service) {
	name := s.Spec.Name
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descMode, 1, name, s.Mode().String())
	if s.Damping != nil {
		ch <- prometheus.MustNewConstMetric(descOscillations, prometheus.CounterValue, float64(s.Damping.Found), name)
		gauge(descDamping, s.Damping.Gain(), name)
	}
	if s.Rollout != nil {
		ch <- prometheus.MustNewConstMetric(descPromotions, prometheus.CounterValue, float64(s.Rollout.Promoted), name)
		ch <- prometheus.MustNewConstMetric(descRollbacks, prometheus.CounterValue, float64(s.Rollout.Demoted), name)
	}
	if score := s.Scores.Explain(s.Mode()); score != nil {
		gauge(descScore, score.Score, name)
		gauge(descScorePart, score.Adherence, name, "adherence")
		if score.Utilization != nil {
			gauge(descScorePart, *score.Utilization, name, "utilization")
		}
		if score.Demand != nil {
			gauge(descScorePart, *score.Demand, name, "demand")
		}
	}
}
