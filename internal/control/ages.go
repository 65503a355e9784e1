package control

import (
	"time"

	"github.com/isobar-xds/isobar/internal/plan"
)

// ages tells the planner how old its inputs are, but for load reports, of which
// it knows itself.
func (l *Loop) ages(now time.Time) []plan.InputAge {
	var out []plan.InputAge
	if l.opts.Outdated != nil {
		out = l.opts.Outdated(now)
	}
	for _, a := range l.keeper.Book().Ages() {
		if a.Checked {
			out = append(out, plan.InputAge{Service: a.Service, Kind: plan.InputHealth, Age: plan.Age{Some: a.Some, Most: a.Most}})
		}
	}
	return out
}
