package assign

import (
	"fmt"

	"github.com/isobar-xds/isobar"
)

// explain adds the reasons that depend on what came out.
func (w *work) explain(r *row, shares []float64) {
	none := isobar.Locality{}
	if w.in.Hold != "" {
		r.note(ReasonHold, none, "weights are held: "+w.in.Hold)
	}
	if w.in.Slow != "" && w.in.deciding() {
		r.note(ReasonSlow, none, w.in.Slow)
	}
	if w.in.Refused != "" {
		r.note(ReasonFallback, none, "what was published goes on, because the check refused the new plan: "+w.in.Refused)
	}
	if r.scope.failOpen {
		r.note(ReasonFailOpen, none, "no endpoint is healthy: all are used as if they were")
	}
	if w.in.deciding() && r.prev != nil {
		w.explainPace(r, shares)
	}
	scale := 1.0
	for l := range shares {
		if shares[l] > 0 {
			scale = max(scale, w.sites[l].Scale)
		}
	}
	if scale > slackFactor && w.ceilings && r.rate > 0 {
		r.note(ReasonOverflow, none, fmt.Sprintf("demand does not fit: ceilings are raised by %.1f%%", 100*(scale-1)))
	}
	if w.drop > 0 {
		r.note(ReasonShed, none, w.whyShed())
	}
}

// explainPace tells how much of the way was gone.
func (w *work) explainPace(r *row, shares []float64) {
	total, gone := shift(r.from, r.want), shift(r.from, shares)
	if total-gone < quietShare || gone < unit/2 {
		return
	}
	to := 0
	for l := range shares {
		if shares[l]-r.from[l] > shares[to]-r.from[to] {
			to = l
		}
	}
	at := w.sites[to].Group.Locality
	if g := w.in.Gain; g > 0 && g < 1 {
		r.note(ReasonDamped, at, fmt.Sprintf("moved %.1f of %.1f points toward %s, because %s", 100*gone, 100*total, at, w.in.Damp))
		return
	}
	r.note(ReasonPaced, at, fmt.Sprintf("moved %.1f of %.1f points toward %s: step of this tick", 100*gone, 100*total, at))
}
