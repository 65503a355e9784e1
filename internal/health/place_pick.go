package health

import (
	"cmp"
	"slices"
)

func (p *placer) add(i, checker int) {
	j := &p.jobs[i]
	j.chosen = append(j.chosen, checker)
	p.count[checker] += j.slots
	p.weigh(checker, j.rate)
}

func (p *placer) remove(i, checker int) {
	j := &p.jobs[i]
	j.chosen = slices.DeleteFunc(j.chosen, func(c int) bool { return c == checker })
	p.count[checker] -= j.slots
	p.weigh(checker, -j.rate)
}

// weigh changes a checker's load and keeps its site's least loaded member
// known.
func (p *placer) weigh(checker int, rate float64) {
	p.load[checker] = max(0, p.load[checker]+rate)
	s := &p.sites[p.siteOf[checker]]
	s.least = p.leastOf(s, func(int) bool { return true })
}

// leastOf returns the site's member with the least load of those that are let
// pass, -1 if there is none.
func (p *placer) leastOf(s *place, passes func(checker int) bool) int {
	least := -1
	for _, m := range s.members {
		if (least < 0 || p.load[m] < p.load[least]) && passes(m) {
			least = m
		}
	}
	return least
}

func (p *placer) zone(checker int) int { return p.sites[p.siteOf[checker]].zone }

func (p *placer) distance(j *job, checker int) float64 { return p.far[j.class][p.siteOf[checker]] }

// domains counts the failure domains of a job's checkers.
func (p *placer) domains(j *job) int {
	n := 0
	for i, c := range j.chosen {
		if !slices.ContainsFunc(j.chosen[:i], func(o int) bool { return p.zone(o) == p.zone(c) }) {
			n++
		}
	}
	return n
}

// inZone counts the job's checkers in a zone.
func (p *placer) inZone(j *job, zone int) int {
	n := 0
	for _, c := range j.chosen {
		if p.zone(c) == zone {
			n++
		}
	}
	return n
}

// candidate is a checker that a job could get; the least one is the best.
type candidate struct {
	checker int
	crowded bool    // in a zone that the job has, though it needs another
	over    bool    // above the soft limit
	score   float64 // ms
	load    float64
}

func (a candidate) better(b candidate) bool {
	if a.crowded != b.crowded {
		return b.crowded
	}
	if a.over != b.over {
		return b.over
	}
	return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.load, b.load), a.checker-b.checker) < 0
}

// hasSlot reports whether a member of a site may get a job in addition.
func (p *placer) hasSlot(s *place, checker int, j *job) bool {
	return s.most == 0 || p.count[checker]+j.slots <= s.most
}

// pick finds the best checker that a job does not have yet.
func (p *placer) pick(j *job, needsZone bool) (candidate, bool) {
	best, found := candidate{}, false
	for i := range p.sites {
		s := &p.sites[i]
		if !s.protocols.Has(j.needs) {
			continue
		}
		c := candidate{checker: s.least}
		here := p.inZone(j, s.zone)
		if free := func(m int) bool { return !slices.Contains(j.chosen, m) && !slices.Contains(j.barred, m) }; !free(s.least) || !p.hasSlot(s, s.least, j) {
			c.checker = p.leastOf(s, func(m int) bool { return free(m) && p.hasSlot(s, m, j) })
			if c.checker < 0 && slices.ContainsFunc(s.members, free) {
				j.full = max(j.full, s.most)
			}
		}
		if c.checker < 0 {
			continue
		}
		c.load = p.load[c.checker]
		if c.load+j.rate > p.hard+1e-9 {
			j.overfull = true
			continue
		}
		c.over = c.load+j.rate > p.soft+1e-9
		c.crowded = needsZone && here > 0
		c.score = p.far[j.class][i] + apart*float64(here)
		if !found || c.better(best) {
			best, found = c, true
		}
	}
	return best, found
}

// fill gives a job the checkers that it lacks, up to a number.
func (p *placer) fill(i, upTo int) {
	j := &p.jobs[i]
	for len(j.chosen) < upTo {
		missing := j.domains - p.domains(j)
		c, ok := p.pick(j, missing >= upTo-len(j.chosen))
		if !ok {
			return
		}
		p.add(i, c.checker)
	}
}

// surplus returns the checker that a job needs least: one whose zone has another, if domains are
// scarce; then the farthest, the busiest.
func (p *placer) surplus(j *job) int {
	scarce := p.domains(j) <= j.domains
	return slices.MaxFunc(j.chosen, func(a, b int) int {
		if scarce {
			if doubleA, doubleB := p.inZone(j, p.zone(a)) > 1, p.inZone(j, p.zone(b)) > 1; doubleA != doubleB {
				if doubleA {
					return 1
				}
				return -1
			}
		}
		return cmp.Or(cmp.Compare(p.distance(j, a), p.distance(j, b)), cmp.Compare(p.load[a], p.load[b]), a-b)
	})
}
