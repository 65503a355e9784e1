package admin

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// ScoreSummary tells how well what was predicted of the services agrees with
// what was then seen.
type ScoreSummary struct {
	Services int     `json:"services"` // that are scored
	Lowest   float64 `json:"lowest"`   // 0 to 1
	Service  string  `json:"service"`  // with the lowest
}

// AutoSummary tells how far the services in mode auto have come.
type AutoSummary struct {
	Observe int `json:"observe"`
	Bounded int `json:"bounded"`
	Full    int `json:"full"`
	Back    int `json:"back"` // of these, services whose last step was one back
}

// auto takes a service into the summary. That one was demoted, somebody should
// know.
func (b *statusBuilder) auto(svc *plan.Service) {
	t := svc.Rollout.Explain(svc.Spec.Promote)
	if t == nil {
		return
	}
	if b.Auto == nil {
		b.Auto = &AutoSummary{}
	}
	switch t.Mode {
	case isobar.ModeObserve:
		b.Auto.Observe++
	case isobar.ModeBounded:
		b.Auto.Bounded++
	default:
		b.Auto.Full++
	}
	if t.Back {
		b.Auto.Back++
		b.aboutf(svc, ModeRolledBack, isobar.Locality{}, "%s", t.Why)
	}
}

// score takes a service into the summary.
func (b *statusBuilder) score(svc *plan.Service) {
	score := svc.Scores.Explain(svc.Mode())
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
