package assign

// The pacing of one tick. Every source would like to go P: its own largest step.
// Together those steps can lift a site above its limit, when one source enters
// before another has left. If all sources move the same fraction U of their way,
// the loads stay on the straight line between where they are and where they
// should be, which keeps the limits. So each source goes P, but falls back towards
// U as far as it lifts a site too high.

// pacing is the stage that takes the sources with demand from where they are towards where
// they should go.
type pacing struct {
	t       *terms
	sources []sourceState

	from shares // where they are; of sources without an answer, where they should go
	want shares // where they should go, trimmed to what sites can carry
	pace shares // where each would go if nobody else moved
	next shares // where they go
}

func newPacing(t *terms, sources []sourceState, from, want shares) pacing {
	p := pacing{t: t, sources: sources, from: from, want: want, pace: newShares(len(sources), len(t.sites)), next: newShares(len(sources), len(t.sites))}
	p.startFresh()
	return p
}

// step is the part of a pacing that concerns one source.
type step struct {
	*sourceState

	from, want, pace, next []float64
}

func (p *pacing) at(i int) step {
	return step{sourceState: &p.sources[i], from: p.from.of(i), want: p.want.of(i), pace: p.pace.of(i), next: p.next.of(i)}
}

// startFresh puts sources without an answer where they should go.
func (p *pacing) startFresh() {
	for i := range p.sources {
		if p.sources[i].prev == nil {
			copy(p.from.of(i), p.want.of(i))
		}
	}
}

// sent returns what the sources send to each site before this decision, requests/s.
func (p *pacing) sent() []float64 {
	sum := make([]float64, len(p.t.sites))
	for i := range p.sources {
		s := &p.sources[i]
		if s.prev == nil {
			s.addTo(sum, p.from.of(i))
		} else {
			s.addTo(sum, s.old)
		}
	}
	return sum
}

// move takes the sources with demand from where they are towards what they
// want, and returns the load that each site may carry after it; nil where no
// ceilings bind.
func (p *pacing) move() (caps []float64) {
	if !p.t.in.deciding() {
		for i := range p.sources {
			copy(p.next.of(i), p.from.of(i))
		}
		if p.t.ceilings {
			caps = p.caps()
		}
		return caps
	}
	if p.t.ceilings {
		caps = p.fitWants()
	}
	p.step(caps)
	return caps
}

// fitWants trims what the sources want of sites that could not carry it, as the
// thresholds and probes shift it a little. It returns the load that each site may
// carry after the step.
func (p *pacing) fitWants() (caps []float64) {
	// New sources are where they want to be: trimming them lowers what the
	// sites carry already, so that it may take another round.
	const rounds = 3
	for range rounds {
		caps = p.caps()
		trimmed := p.trim(caps)
		p.startFresh()
		if !trimmed {
			return caps
		}
	}
	return p.caps()
}

// trim moves what exceeds the caps to the nearest sites with headroom below theirs,
// and reports whether there was anything to move.
func (p *pacing) trim(caps []float64) bool {
	load, probes := p.t.loads(p.sources, p.want), probeLoads(p.t, p.sources)
	over := false
	excess := make([]float64, len(caps)) // fraction of the load without probes, which stay
	headroom := make([]float64, len(caps))
	for l := range caps {
		if e := load[l] - caps[l]; e > caps[l]*(slackFactor-1) && e > tiny {
			excess[l], over = min(1, e/max(tiny, load[l]-probes[l])), true
		} else if p.t.view.use[l] {
			headroom[l] = max(0, caps[l]-load[l])
		}
	}
	if !over {
		return false
	}
	trimmed := placing{t: p.t, sources: p.sources, into: p.want}
	for i := range p.sources {
		s, want := &p.sources[i], p.want.of(i)
		if s.rate <= 0 {
			continue
		}
		for l, f := range excess {
			if !s.isProbe(l) {
				trimmed.lose(i, f*want[l])
				want[l] -= f * want[l]
			}
		}
	}
	trimmed.nearest(headroom, func(i, l int) bool {
		return p.sources[i].member(l, p.from.of(i), p.want.of(i)) && trimmed.unbounded(i, l)
	})
	trimmed.nearest(headroom, trimmed.unbounded)
	trimmed.rest()
	return true
}

// caps is what each site may carry after the step: its limit, what it carries
// already, or its probes. Where no regular traffic goes, only sources that may not
// use other sites send more than probes, and stay: the probes come on top.
func (p *pacing) caps() []float64 {
	load, caps := p.t.loads(p.sources, p.from), probeLoads(p.t, p.sources)
	for l := range caps {
		if p.t.view.use[l] {
			caps[l] = max(caps[l], p.t.view.limit[l], load[l])
		} else {
			caps[l] += load[l]
		}
	}
	return caps
}

// step moves the sources with demand towards what they want. caps is nil where
// no ceilings bind.
func (p *pacing) step(caps []float64) {
	sent := p.sent()
	common := 1.0
	for i := range p.sources {
		if s := p.at(i); s.rate > 0 {
			common = min(common, s.alone(p.t, sent))
		}
	}
	mix := make([]float64, len(p.sources)) // 1 = P, 0 = U
	for i := range mix {
		mix[i] = 1
	}
	p.blend(mix, common)
	if caps == nil {
		return
	}
	load := make([]float64, len(p.t.sites))
	for range 4*len(load) + 8 {
		loadsInto(load, p.sources, p.next)
		at := overCap(load, caps)
		if at < 0 {
			return
		}
		p.hold(mix, common, at, load[at]-caps[at])
		p.blend(mix, common)
	}
	clear(mix)
	p.blend(mix, common)
	p.retreat(load, caps)
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

// hold pulls the sources that lift a site beyond the common step back towards it,
// until the excess is gone.
func (p *pacing) hold(mix []float64, common float64, site int, excess float64) {
	lift := func(i int) float64 {
		s := p.at(i)
		if s.rate <= 0 {
			return 0
		}
		return max(0, s.rate*mix[i]*(s.pace[site]-s.common(site, common)))
	}
	total := 0.0
	for i := range p.sources {
		total += lift(i)
	}
	keep := 0.0
	if total > excess {
		keep = 1 - excess/total
	}
	for i := range p.sources {
		if lift(i) > 0 {
			mix[i] *= keep
		}
	}
}

// common is where the step that all sources take alike leads on a site.
func (s *step) common(l int, fraction float64) float64 {
	return s.from[l] + fraction*(s.want[l]-s.from[l])
}

func (p *pacing) blend(mix []float64, common float64) {
	for i := range p.sources {
		s := p.at(i)
		if s.rate <= 0 {
			continue
		}
		for l := range s.next {
			s.next[l] = mix[i]*s.pace[l] + (1-mix[i])*s.common(l, common)
		}
	}
}

// alone works out the source's own largest step into pace, and returns the
// fraction of its way that it could go in a straight line. load is what the
// sites carry with the shares that are published.
func (s *step) alone(t *terms, load []float64) float64 {
	if s.prev == nil {
		copy(s.pace, s.want)
		return 1
	}
	relief, other := 0.0, 0.0
	for l := range s.want {
		if d := s.from[l] - s.want[l]; d > 0 {
			if t.overLimit(l, load) {
				relief += d
			} else {
				other += d
			}
		}
	}
	total, step := relief+other, t.in.step()
	if g := t.in.Gain; g > 0 && g < 1 && other > tiny {
		step = min(step, g*other)
	}
	back := s.comesBack(t.mode, s.from, s.want)
	step, most := max(step, back), max(reliefShare, back)
	if total <= tiny || (other <= step && total <= most) {
		copy(s.pace, s.want)
		return 1
	}
	slow := min(1, step/max(other, tiny))
	fast := min(1, (most-slow*other)/max(relief, tiny))
	moves := slow*other + fast*relief
	ins := s.arrivals(moves)
	if sum(ins) <= tiny && moves < entryShare && entryShare <= t.in.step() {
		// Only sites that enter are left, and with a part of the way none ever gets
		// what it takes: so one of them does. More is damped as before.
		moves = min(total, entryShare)
		slow, fast = moves/total, moves/total
		ins = s.arrivals(moves)
	}
	left := min(1, sum(ins)/moves)
	for l := range s.pace {
		s.pace[l] = s.from[l] + ins[l]
		if d := s.from[l] - s.want[l]; d > 0 {
			f := slow
			if t.overLimit(l, load) {
				f = fast
			}
			s.pace[l] -= left * f * d
		}
	}
	return min(1, step/max(other, tiny), most/total)
}

// step is the share that a source may move in a tick.
func (in *Input) step() float64 {
	if in.Pace > 0 && in.Pace < 1 {
		return in.Pace * stepShare
	}
	return stepShare
}

// arrivals splits the share that moves in this step over the sites that gain.
// A site that enters gets at least the entry threshold at once, or waits.
func (s *step) arrivals(moves float64) []float64 {
	ins := make([]float64, len(s.want))
	fixed := make([]bool, len(s.want)) // enters with exactly the threshold, or waits
	for range 2*len(ins) + 1 {
		held, open := 0.0, 0.0
		for l := range ins {
			switch {
			case fixed[l]:
				held += ins[l]
			case s.want[l] > s.from[l]:
				open += s.want[l] - s.from[l]
			}
		}
		if held > moves+tiny {
			s.postpone(ins, fixed)
			continue
		}
		scale := 0.0
		if open > 0 {
			scale = max(0, min(1, (moves-held)/open)) // held may be a little more than moves
		}
		if s.raise(ins, fixed, scale) {
			continue
		}
		break
	}
	return ins
}

// raise sets the open arrivals to scale; it reports whether one of them had to be
// lifted to the entry threshold, which changes the scale of the others.
func (s *step) raise(ins []float64, fixed []bool, scale float64) bool {
	raised := false
	for l := range ins {
		gain := s.want[l] - s.from[l]
		if fixed[l] || gain <= 0 {
			continue
		}
		ins[l] = scale * gain
		if low := min(entryShare, gain); s.from[l] <= 0 && !s.isProbe(l) && ins[l] < low-tiny {
			ins[l], fixed[l], raised = low, true, true
		}
	}
	return raised
}

// postpone lets the smallest of the entering sites wait for a later tick.
func (s *step) postpone(ins []float64, fixed []bool) {
	at := -1
	for l := range ins {
		if fixed[l] && ins[l] > 0 && (at < 0 || s.want[l] < s.want[at]) {
			at = l
		}
	}
	if at >= 0 {
		ins[at] = 0
	}
}

// retreat is for wants that do not fit together, as when bars leave no way to
// keep the limits: then those that lift a site too high go only so far that it
// is lifted no further, and the others their way. Where that makes others lift
// the sites that they stay on, it takes several rounds.
func (p *pacing) retreat(load, caps []float64) {
	for range 4*len(load) + 8 {
		loadsInto(load, p.sources, p.next)
		at := overCap(load, caps)
		if at < 0 {
			return
		}
		total := 0.0
		for i := range p.sources {
			s := p.at(i)
			total += s.lifts(at)
		}
		keep := max(0, 1-(load[at]-caps[at])/max(tiny, total))
		for i := range p.sources {
			if s := p.at(i); s.lifts(at) > 0 {
				s.goBack(keep)
			}
		}
	}
	for i := range p.sources {
		s := p.at(i)
		s.goBack(0) // what is there already is within the caps
	}
}

// lifts is what the source's step adds to the load of a site.
func (s *step) lifts(site int) float64 { return max(0, s.rate*(s.next[site]-s.from[site])) }

// goBack keeps a part of the source's step.
func (s *step) goBack(keep float64) {
	for l := range s.next {
		s.next[l] = s.from[l] + keep*(s.next[l]-s.from[l])
	}
}
