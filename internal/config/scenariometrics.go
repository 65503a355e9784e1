package config

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

// ScenarioMetric is what endpoints report under a name of their own.
type ScenarioMetric struct {
	Service  string
	Locality isobar.Locality // or a region or zone; zero = all
	Name     string
	AtRest   float64
	Full     float64 // at utilization 1
}

// maxScenarioMetrics is how many metrics a service of a scenario may have.
const maxScenarioMetrics = 32

var levelRange = strict.Range{Max: 1e12}

func (r *scenarioReader) metricsField(s *isobar.Service) strict.Field {
	return strict.Field{Name: "metrics", Read: func(v strict.Value) {
		items, _ := v.List()
		if len(items) > maxScenarioMetrics {
			v.Errorf("keep those that a limit is about", "%d metrics are more than %d", len(items), maxScenarioMetrics)
			return
		}
		for _, item := range items {
			m := ScenarioMetric{Service: s.Name}
			item.Object([]strict.Field{
				{Name: "name", Required: true, Read: func(v strict.Value) {
					name, ok := v.Text()
					if _, err := isobar.ParseLimitMetric(isobar.NamedMetrics + name); ok && err != nil {
						v.Errorf("use printable characters but blanks, quotes and backslashes, at most 128", "%q is not the name of a metric", name)
						return
					}
					m.Name = name
				}},
				{Name: "locality", Read: func(v strict.Value) { m.Locality, _ = readLocality(v) }},
				floatField("at_rest", &m.AtRest, levelRange),
				requiredFloat("full", &m.Full, levelRange),
			})
			r.scenario.Metrics = append(r.scenario.Metrics, m)
		}
	}}
}
