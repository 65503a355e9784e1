package assign

import (
	"fmt"

	"github.com/isobar-xds/isobar"
)

// explain adds the reasons that depend on what came out.
func explain(t *terms, r *row, from, want, shares []float64) {
	none := isobar.Locality{}
	if t.in.Hold != "" {
		r.note(ReasonHold, none, "weights are held: "+t.in.Hold)
	}
	if t.in.Slow != "" && t.in.deciding() {
		r.note(ReasonSlow, none, t.in.Slow)
	}
	if t.in.Refused != "" {
		r.note(ReasonFallback, none, "the previous assignment stays in force, because the check refused the new plan: "+t.in.Refused)
	}
	if r.scope.failOpen {
		r.note(ReasonFailOpen, none, "no endpoint is healthy: all are used as if they were")
	}
	if t.in.deciding() && r.prev != nil {
		explainPace(t, r, from, want, shares)
	}
	scale := 1.0
	for l := range shares {
		if shares[l] > 0 {
			scale = max(scale, t.sites[l].Scale)
		}
	}
	if scale > slackFactor && t.ceilings && r.rate > 0 {
		r.note(ReasonOverflow, none, fmt.Sprintf("demand does not fit: ceilings are raised by %.1f%%", 100*(scale-1)))
	}
	if t.drop > 0 {
		r.note(ReasonShed, none, t.whyShed())
	}
}

// explainPace tells how much of the way was gone.
func explainPace(t *terms, r *row, from, want, shares []float64) {
	total, gone := shift(from, want), shift(from, shares)
	if total-gone < quietShare || gone < unit/2 {
		return
	}
	to := 0
	for l := range shares {
		if shares[l]-from[l] > shares[to]-from[to] {
			to = l
		}
	}
	at := t.sites[to].Group.Locality
	if g := t.in.Gain; g > 0 && g < 1 {
		r.note(ReasonDamped, at,
			fmt.Sprintf("%.1f%% of the requests moved toward %s, of %.1f%% that are to move, because %s", 100*gone, at, 100*total, t.in.Damp))
		return
	}
	r.note(ReasonPaced, at,
		fmt.Sprintf("%.1f%% of the requests moved toward %s, of %.1f%% that are to move: the next decisions move the rest", 100*gone, at, 100*total))
}

// whyShed tells who drops how much.
func (t *terms) whyShed() string {
	text := fmt.Sprintf("%.2f%% of requests are dropped at the clients", 100*t.drop)
	if t.classes == nil {
		return text
	}
	for c := isobar.Classes - 1; c >= 0; c-- {
		if d := t.classes.Drops[c]; d > 0 {
			text += fmt.Sprintf("; %.2f%% of those of %s ones", 100*d, isobar.Class(c))
		}
	}
	return text
}
