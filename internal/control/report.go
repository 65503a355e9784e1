package control

import (
	"time"

	"github.com/isobar-xds/isobar/internal/plan"
)

// logEvery bounds how often the same broken rule of the same service is logged.
const logEvery = time.Minute

// maxBad bounds what is remembered for that.
const maxBad = 1000

// report counts and logs what the check refused.
func (l *Loop) report(p *plan.Plan) {
	for i := range p.Violations {
		v := &p.Violations[i]
		l.metrics.violations.WithLabelValues(v.Rule).Inc()
		if len(l.bad) > maxBad {
			clear(l.bad)
		}
		key := v.Rule + "\x00" + v.Service
		if p.Made.Sub(l.bad[key]) < logEvery {
			continue
		}
		l.bad[key] = p.Made
		l.log.Error("a plan broke an invariant and was replaced by the previous one",
			"rule", v.Rule, "service", v.Service, "source", v.Source.String(), "text", v.Text)
	}
}
