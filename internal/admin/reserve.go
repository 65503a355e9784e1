package admin

import (
	"time"

	"github.com/isobar-xds/isobar/internal/plan"
)

// ReserveSummary tells which services would not stand the loss of a zone.
type ReserveSummary struct {
	AgeSeconds float64        `json:"age_seconds"` // of the plan that was looked at
	Services   int            `json:"services"`    // of which it is known
	Failing    int            `json:"failing"`     // of them, that would not stand it
	Worst      []plan.Reserve `json:"worst"`       // of those, at most maxHolds, sorted by name
}

// reserves adds the check for losses; nothing before its first round.
func (b *statusBuilder) reserves(at time.Time, services []plan.Reserve) {
	if at.IsZero() {
		return
	}
	out := &ReserveSummary{AgeSeconds: seconds(time.Since(at)), Services: len(services), Worst: []plan.Reserve{}}
	for i := range services {
		if services[i].Stands() {
			continue
		}
		if out.Failing++; len(out.Worst) < maxHolds {
			out.Worst = append(out.Worst, services[i])
		}
	}
	b.N1 = out
}
