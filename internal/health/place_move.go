package health

import (
	"cmp"
	"slices"
)

// trim takes work off checkers that are over their limit: the farthest first.
func (p *placer) trim() {
	for c := range p.checkers {
		if p.load[c] <= p.hard+1e-9 {
			continue
		}
		for _, i := range p.farthest(c) {
			if p.load[c] <= p.hard+1e-9 {
				break
			}
			p.remove(i, c)
		}
	}
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

// rounds bounds rebalancing: what one round moved can make room for another.
const rounds = 8

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

// hand gives a job of a checker to another one, if there is one with room and
// the job's zones stay as many as they should be.
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
