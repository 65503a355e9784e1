package health

import (
	"cmp"
	"slices"
)

// trim takes work off checkers that are over their limits: the farthest first.
func (p *placer) trim() {
	for c := range p.checkers {
		if p.within(c) {
			continue
		}
		for _, i := range p.farthest(c) {
			if p.within(c) {
				break
			}
			p.remove(i, c)
		}
	}
}

// within reports whether a checker is at or under its limits.
func (p *placer) within(c int) bool {
	most := p.checkers[c].MaxEndpoints
	return p.load[c] <= p.hard+1e-9 && (most == 0 || p.count[c] <= most)
}

// farthest lists a checker's jobs, the farthest first.
func (p *placer) farthest(checker int) []int {
	var out []int
	for i := range p.jobs {
		if slices.Contains(p.jobs[i].chosen, checker) {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int {
		return cmp.Compare(p.distance(&p.jobs[b], checker), p.distance(&p.jobs[a], checker))
	})
	return out
}

// spread exchanges checkers of a job whose zones are too few for others, once
// there are any.
func (p *placer) spread(i int) {
	j := &p.jobs[i]
	for range j.chosen {
		if len(j.chosen) < j.want || p.domains(j) >= min(j.domains, j.want) {
			return
		}
		c, ok := p.pick(j, true)
		if !ok || c.crowded {
			return
		}
		p.remove(i, p.surplus(j))
		p.add(i, c.checker)
	}
}

// rounds bounds widening and rebalancing: the moves of one round can free capacity for another.
const rounds = 8

// widen exchanges one of two checkers in a zone for one in another zone, where
// an endpoint's checkers are in no more zones than have to agree: if the zone
// of the third is cut off, the two agree in vain. Without this the order in
// which checkers first came would decide for ever which zones an endpoint's
// verdict depends on.
func (p *placer) widen() {
	for range rounds {
		moved := false
		for i := range p.jobs {
			moved = p.exchange(i) || moved
		}
		if !moved {
			return
		}
	}
}

// exchange widens one job, if a checker is near enough and below its limit. The remaining
// checkers are enough for a verdict while the new one has not reported.
func (p *placer) exchange(i int) bool {
	j := &p.jobs[i]
	if j.domains < 2 || len(j.chosen) < j.want || p.domains(j) >= min(j.want, j.domains+1) {
		return false
	}
	from := p.doubled(j)
	c, ok := p.pick(j, true)
	if !ok || c.crowded || c.over || c.score >= p.distance(j, from)+apart {
		return false
	}
	p.remove(i, from)
	p.add(i, c.checker)
	return true
}

// doubled returns the farthest, then the busiest, of a job's checkers that share
// their zone with another; there is one if the job has fewer zones than
// checkers.
func (p *placer) doubled(j *job) int {
	best := -1
	for _, c := range j.chosen {
		if p.inZone(j, p.zone(c)) < 2 {
			continue
		}
		if best < 0 || cmp.Or(cmp.Compare(p.distance(j, c), p.distance(j, best)), cmp.Compare(p.load[c], p.load[best]), c-best) > 0 {
			best = c
		}
	}
	return best
}

// rebalance moves work from checkers over the soft limit to others that stay
// under it, no more than that needs.
func (p *placer) rebalance() {
	for range rounds {
		moved := false
		for c := range p.checkers {
			if p.load[c] <= p.soft+1e-9 {
				continue
			}
			for _, i := range p.farthest(c) {
				if p.load[c] <= p.soft+1e-9 {
					break
				}
				moved = p.hand(i, c) || moved
			}
		}
		if !moved {
			return
		}
	}
}

// hand gives a job of a checker to another one below its limit, if the number of the job's zones
// stays sufficient.
func (p *placer) hand(i, from int) bool {
	j := &p.jobs[i]
	needed := min(j.domains, p.domains(j))
	p.remove(i, from)
	// The one that gives is not under the limit with the job, so it is not
	// picked unless all others are over it too.
	c, ok := p.pick(j, p.domains(j) < needed)
	if !ok || c.over || c.crowded || c.checker == from {
		p.add(i, from)
		return false
	}
	p.add(i, c.checker)
	return true
}
