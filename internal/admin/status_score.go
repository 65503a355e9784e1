package admin

import "github.com/isobar-xds/isobar/internal/plan"

// ScoreSummary tells how well what was predicted of the services agrees with
// what was then seen.
type ScoreSummary struct {
	Services int     `json:"services"` // that are scored
	Lowest   float64 `json:"lowest"`   // 0 to 1
	Service  string  `json:"service"`  // with the lowest
}

// score takes a service into the summary.
func (b *statusBuilder) score(svc *plan.Service) {
	score := svc.Score()
	if score == nil {
		return
	}
	if b.Scores == nil {
		b.Scores = &ScoreSummary{Lowest: 1, Service: svc.Spec.Name}
	}
	b.Scores.Services++
	if score.Score < b.Scores.Lowest {
		b.Scores.Lowest, b.Scores.Service = score.Score, svc.Spec.Name
	}
}
