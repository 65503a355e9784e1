package assign

// The pacing of one tick. Every row would like to go P: its own largest step.
// Together those steps can lift a site above its limit, when one source enters
// before another has left. If all rows move the same fraction U of their way,
// the loads stay on the straight line between where they are and where they
// should be, which keeps the limits. So each row goes P, but falls back towards
// U as far as it lifts a site too high.

// fitWants trims what the rows want of sites that could not carry it, as the
// thresholds and probes shift it a little. It gives the load that each site may
// carry after the step.
func (w *work) fitWants() (caps []float64) {
	// New sources are where they want to be: trimming them lowers what the
	// sites carry already, so that it may take another round.
	const rounds = 3
	for range rounds {
		caps = w.caps(w.loads(fromOf))
		trimmed := w.trim(caps)
		w.startFresh()
		if !trimmed {
			return caps
		}
	}
	return w.caps(w.loads(fromOf))
}

// trim moves what exceeds the caps to the nearest sites with room below theirs,
// and tells whether there was anything to move.
func (w *work) trim(caps []float64) bool {
	load, probes := w.loads(wantOf), w.probeLoads()
	over := false
	excess := make([]float64, len(caps)) // fraction of the load without probes, which stay
	room := make([]float64, len(caps))
	for l := range caps {
		if e := load[l] - caps[l]; e > caps[l]*(slackFactor-1) && e > tiny {
			excess[l], over = min(1, e/max(tiny, load[l]-probes[l])), true
		} else if w.view.use[l] {
			room[l] = max(0, caps[l]-load[l])
		}
	}
	if !over {
		return false
	}
	for i := range w.rows {
		r := &w.rows[i]
		if r.rate <= 0 {
			continue
		}
		for l, f := range excess {
			if !r.isProbe(l) {
				r.lost += f * r.want[l]
				r.want[l] -= f * r.want[l]
			}
		}
	}
	w.placeNearest(wantOf, room, func(r *row, l int) bool { return w.member(r, l) && w.unbounded(r, l) })
	w.placeNearest(wantOf, room, w.unbounded)
	w.placeRest(wantOf)
	return true
}

// caps is what each site may carry after the step: its limit, what it carries
// already, or its probes. Where no regular traffic goes, only rows that may not
// use other sites send more than probes, and stay: the probes come on top.
func (w *work) caps(load []float64) []float64 {
	caps := w.probeLoads()
	for l := range caps {
		if w.view.use[l] {
			caps[l] = max(caps[l], w.view.limit[l], load[l])
		} else {
			caps[l] += load[l]
		}
	}
	return caps
}

// step moves the rows with demand towards what they want. caps is nil where
// no ceilings bind.
func (w *work) step(caps []float64) {
	published := w.loads(publishedOf)
	common := 1.0
	for i := range w.rows {
		r := &w.rows[i]
		if r.rate > 0 {
			common = min(common, w.stepAlone(r, published))
		}
	}
	mix := make([]float64, len(w.rows)) // 1 = P, 0 = U
	for i := range mix {
		mix[i] = 1
	}
	w.blend(mix, common)
	if caps == nil {
		return
	}
	load := make([]float64, len(w.sites))
	for range 4*len(w.sites) + 8 {
		w.loadsInto(load, nextOf)
		at := overCap(load, caps)
		if at < 0 {
			return
		}
		w.hold(mix, common, at, load[at]-caps[at])
		w.blend(mix, common)
	}
	clear(mix)
	w.blend(mix, common)
	w.retreat(load, caps)
}

// overCap finds the site that is furthest above its cap; -1 when none is.
func overCap(load, caps []float64) int {
	at, worst := -1, 0.0
	for l := range load {
		if e := load[l] - caps[l]*slackFactor; e > worst && e > tiny {
			at, worst = l, e
		}
	}
	return at
}

// hold pulls the rows that lift a site beyond the common step back towards it,
// until the excess is gone.
func (w *work) hold(mix []float64, common float64, site int, excess float64) {
	lift := func(i int) float64 {
		r := &w.rows[i]
		if r.rate <= 0 {
			return 0
		}
		return max(0, r.rate*mix[i]*(r.pace[site]-r.common(site, common)))
	}
	total := 0.0
	for i := range w.rows {
		total += lift(i)
	}
	keep := 0.0
	if total > excess {
		keep = 1 - excess/total
	}
	for i := range w.rows {
		if lift(i) > 0 {
			mix[i] *= keep
		}
	}
}

// common is where the step that all rows take alike leads on a site.
func (r *row) common(l int, fraction float64) float64 {
	return r.from[l] + fraction*(r.want[l]-r.from[l])
}

func (w *work) blend(mix []float64, common float64) {
	for i := range w.rows {
		r := &w.rows[i]
		if r.rate <= 0 {
			continue
		}
		for l := range r.next {
			r.next[l] = mix[i]*r.pace[l] + (1-mix[i])*r.common(l, common)
		}
	}
}

// stepAlone works out the row's own largest step into pace, and gives the
// fraction of its way that it could go in a straight line. load is what the
// sites carry with the shares that are published.
func (w *work) stepAlone(r *row, load []float64) float64 {
	if r.prev == nil {
		copy(r.pace, r.want)
		return 1
	}
	relief, other := 0.0, 0.0
	for l := range r.want {
		if d := r.from[l] - r.want[l]; d > 0 {
			if w.overLimit(l, load) {
				relief += d
			} else {
				other += d
			}
		}
	}
	total, step := relief+other, w.in.step()
	if g := w.in.Gain; g > 0 && g < 1 && other > tiny {
		step = min(step, g*other)
	}
	back := w.comesBack(r)
	step, most := max(step, back), max(reliefShare, back)
	if total <= tiny || (other <= step && total <= most) {
		copy(r.pace, r.want)
		return 1
	}
	slow := min(1, step/max(other, tiny))
	fast := min(1, (most-slow*other)/max(relief, tiny))
	moves := slow*other + fast*relief
	ins := r.arrivals(moves)
	if sum(ins) <= tiny && moves < entryShare && entryShare <= w.in.step() {
		// Only sites that enter are left, and with a part of the way none ever gets
		// what it takes: so one of them does. More is damped as before.
		moves = min(total, entryShare)
		slow, fast = moves/total, moves/total
		ins = r.arrivals(moves)
	}
	left := min(1, sum(ins)/moves)
	for l := range r.pace {
		r.pace[l] = r.from[l] + ins[l]
		if d := r.from[l] - r.want[l]; d > 0 {
			f := slow
			if w.overLimit(l, load) {
				f = fast
			}
			r.pace[l] -= left * f * d
		}
	}
	return min(1, step/max(other, tiny), most/total)
}

// step is the share that a row may move in a tick.
func (in *Input) step() float64 {
	if in.Pace > 0 && in.Pace < 1 {
		return in.Pace * stepShare
	}
	return stepShare
}

func (w *work) overLimit(l int, load []float64) bool {
	return w.ceilings && w.view.use[l] && load[l] > w.view.limit[l]*slackFactor+tiny
}

// arrivals splits the share that moves in this step over the sites that gain.
// A site that enters gets at least the entry threshold at once, or waits.
func (r *row) arrivals(moves float64) []float64 {
	ins := make([]float64, len(r.want))
	fixed := make([]bool, len(r.want)) // enters with exactly the threshold, or waits
	for range 2*len(ins) + 1 {
		held, open := 0.0, 0.0
		for l := range ins {
			switch {
			case fixed[l]:
				held += ins[l]
			case r.want[l] > r.from[l]:
				open += r.want[l] - r.from[l]
			}
		}
		if held > moves+tiny {
			r.postpone(ins, fixed)
			continue
		}
		scale := 0.0
		if open > 0 {
			scale = max(0, min(1, (moves-held)/open)) // held may be a little more than moves
		}
		if r.raise(ins, fixed, scale) {
			continue
		}
		break
	}
	return ins
}

// raise sets the open arrivals to scale; it tells whether one of them had to be
// lifted to the entry threshold, which changes the scale of the others.
func (r *row) raise(ins []float64, fixed []bool, scale float64) bool {
	raised := false
	for l := range ins {
		gain := r.want[l] - r.from[l]
		if fixed[l] || gain <= 0 {
			continue
		}
		ins[l] = scale * gain
		if low := min(entryShare, gain); r.from[l] <= 0 && !r.isProbe(l) && ins[l] < low-tiny {
			ins[l], fixed[l], raised = low, true, true
		}
	}
	return raised
}

// postpone lets the smallest of the entering sites wait for a later tick.
func (r *row) postpone(ins []float64, fixed []bool) {
	at := -1
	for l := range ins {
		if fixed[l] && ins[l] > 0 && (at < 0 || r.want[l] < r.want[at]) {
			at = l
		}
	}
	if at >= 0 {
		ins[at] = 0
	}
}
