package solver

import "math"

const (
	// tieLatency is how much mean latency, in ms, a solution may give away to
	// stay near the previous one; tieShare limits it for very fast services.
	tieLatency = 0.01
	tieShare   = 0.004
	// tieAim is the part of it that a new answer spends, so that the same answer
	// still lies inside when it comes back with slightly different demand.
	tieAim = 0.1
)

// breakTies picks among the solutions of (nearly) the same cost: the one
// nearest the previous flows, and without previous flows one that is split in
// proportion to headroom.
func (pp *componentProgram) breakTies(best optimum, method *interior, iterations *int) []float64 {
	in, prog := pp.in, pp.prog
	total := 0.0
	for _, d := range prog.demand {
		total += d
	}
	flow := best.flow
	value := prog.value(flow)
	budget := in.service.tieBudget(total, value)
	var target []float64
	if in.service.Previous == nil {
		target = prog.byHeadroom(flow, best.prices)
	} else {
		target = pp.byShares(in.service.Previous, flow)
	}
	if prog.keeps(target) && prog.value(target) <= value+budget {
		return target
	}
	if in.service.Previous == nil {
		return flow
	}
	nearest := prog.pullTo(target, flow, tieAim*budget, method, iterations)
	if prog.value(nearest) > value+budget {
		return flow
	}
	return prog.extend(nearest, target, value+tieAim*budget)
}

// tieBudget is what ties may cost at a demand and a cost of the optimum.
func (s *Service) tieBudget(demand, value float64) float64 {
	budget := math.Min(tieLatency*demand, tieShare*value)
	if s.Ties > 0 {
		budget *= s.Ties
	}
	return budget
}

// byShares is an earlier answer in shares of today's demand; a source that had
// none keeps what the optimum gives it.
func (pp *componentProgram) byShares(earlier [][]float64, flow []float64) []float64 {
	in, n := pp.in, len(pp.localities)
	target := make([]float64, len(flow))
	for i, s := range pp.component.sources {
		row := earlier[s]
		sum := 0.0
		for _, x := range row {
			sum += x
		}
		if !(sum > 0) || math.IsInf(sum, 1) {
			copy(target[i*n:(i+1)*n], flow[i*n:])
			continue
		}
		factor := in.served[s] / sum
		if math.Abs(factor-1) < unmetSlack {
			factor = 1 // the same demand: the same digits
		}
		for j, l := range pp.localities {
			if in.open[s*in.localities+l] {
				target[i*n+j] = row[l] * factor
			}
		}
	}
	return target
}

// byHeadroom splits each source over the localities that are within a tie of
// its best, in proportion to their headroom.
func (p *program) byHeadroom(flow, prices []float64) []float64 {
	n := p.localities
	target := make([]float64, len(flow))
	for s, d := range p.demand {
		best := math.Inf(1)
		for l := range n {
			if a := s*n + l; p.open[a] {
				best = math.Min(best, p.cost[a]+prices[l])
			}
		}
		sum := 0.0
		for l := range n {
			if a := s*n + l; p.open[a] && p.cost[a]+prices[l] <= best+tieLatency {
				target[a] = p.headroom[l]
				sum += p.headroom[l]
			}
		}
		for l := range n {
			target[s*n+l] *= d / sum
		}
	}
	return target
}

// keeps reports whether flows meet all constraints.
func (p *program) keeps(flow []float64) bool {
	n := p.localities
	load := make([]float64, n)
	for s, d := range p.demand {
		sum := 0.0
		for l := range n {
			x := flow[s*n+l]
			sum += x
			load[l] += x
		}
		if !(math.Abs(sum-d) <= unmetSlack*d) {
			return false
		}
	}
	for l, y := range load {
		if y > p.headroom[l]*(1+unmetSlack) {
			return false
		}
	}
	return true
}

// pullTo solves the program with a spring to the target. The strength is such
// that it costs at most budget: for x* optimal and x the answer,
// f(x) - f(x*) <= pull/2 (|x* - target|^2 - |x - target|^2).
func (p *program) pullTo(target, optimal []float64, budget float64, method *interior, iterations *int) []float64 {
	distance := 0.0
	for a, x := range optimal {
		distance += (x - target[a]) * (x - target[a])
	}
	pulled := *p
	pull := 2 * budget / distance
	if !(pull > 0) || math.IsInf(pull, 1) {
		return optimal
	}
	pulled.target, pulled.spring = target, make([]float64, len(target))
	for a := range pulled.spring {
		pulled.spring[a] = pull
	}
	best := pulled.solve(method)
	*iterations += best.iterations
	return best.flow
}

// extend goes from flows towards the target as far as headrooms and the limit on
// the cost allow.
func (p *program) extend(flow, target []float64, limit float64) []float64 {
	n := p.localities
	toward := make([]float64, len(flow))
	for s, d := range p.demand {
		sum := 0.0
		for l := range n {
			sum += target[s*n+l]
		}
		if math.Abs(sum-d) > unmetSlack*d {
			continue // part of the previous flow has nowhere to go any more
		}
		for l := range n {
			toward[s*n+l] = target[s*n+l] - flow[s*n+l]
		}
	}
	longest := p.farthest(flow, toward)
	if longest <= 0 {
		return flow
	}
	lo, hi := 0.0, longest
	at := make([]float64, len(flow))
	move := func(theta float64) float64 {
		for a, x := range flow {
			at[a] = math.Max(0, x+theta*toward[a])
		}
		return p.value(at)
	}
	for range 30 {
		mid := (lo + hi) / 2
		if move(mid) <= limit {
			lo = mid
		} else {
			hi = mid
		}
	}
	move(lo)
	return p.round(at)
}

// farthest is the longest step that keeps loads under their headrooms, at most 1.
func (p *program) farthest(flow, toward []float64) float64 {
	load, change := make([]float64, p.localities), make([]float64, p.localities)
	total := 0.0
	for a, x := range flow {
		load[a%p.localities] += x
		change[a%p.localities] += toward[a]
		total += x
	}
	longest := 1.0
	for l, c := range change {
		switch {
		case p.forced && math.Abs(c) > unmetSlack*total:
			return 0
		case c > 0 && !p.forced:
			longest = math.Min(longest, math.Max(0, p.headroom[l]-load[l])/c)
		}
	}
	return longest
}

// towardsPrevious goes from the optimum towards the previous answer in shares of
// today's demand as far as ceilings and what a tie may cost allow; demand is
// what comes from outside. Shares of rows without a past are those of x.
func (n *network) towardsPrevious(members []*member, flow, x []float64, demand float64) []float64 {
	target, past := n.previous(members, x)
	if !past {
		return flow
	}
	value := n.value(flow)
	budget := math.Min(tieLatency*demand, tieShare*value)
	longest := n.farthest(flow, target)
	if longest >= 1 && n.value(target) <= value+budget {
		return target
	}
	at := make([]float64, len(flow))
	move := func(theta float64) float64 {
		for a := range at {
			at[a] = flow[a] + theta*(target[a]-flow[a])
		}
		return n.value(at)
	}
	lo, hi := 0.0, math.Min(1, longest)
	for range 30 {
		mid := (lo + hi) / 2
		if move(mid) <= value+tieAim*budget {
			lo = mid
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return flow
	}
	move(lo)
	nearer := n.round(at)
	if n.value(nearer) > value+budget {
		return flow
	}
	return nearer
}

// previous spreads today's demand, callers first, as the previous answer did. It
// reports whether there is any.
func (n *network) previous(members []*member, x []float64) (target []float64, past bool) {
	target = make([]float64, len(x))
	load := make([]float64, len(n.columns))
	for r := range n.rows {
		w := &n.rows[r]
		h, base := &n.hops[w.hop], n.arc(r)
		shares := target[base : base+h.columns]
		sum := 0.0
		if before := members[w.hop].service.Previous; before != nil {
			for k := range shares {
				if n.open[base+k] {
					shares[k] = before[w.source][n.columns[h.firstCol+k].locality]
					sum += shares[k]
				}
			}
		}
		if past = past || sum > 0; !(sum > 0) || math.IsInf(sum, 1) {
			sum = 0
			for k := range shares {
				shares[k] = math.Max(0, x[base+k])
				sum += shares[k]
			}
		}
		factor := n.demandOf(r, load) / sum
		if math.Abs(factor-1) < unmetSlack {
			factor = 1 // the same demand: the same digits
		}
		for k := range shares {
			shares[k] *= factor
			load[h.firstCol+k] += shares[k]
		}
	}
	return target, past
}

// farthest is the longest step from flows to others that keeps loads under
// their headrooms; more than 1 where these fit, 0 where there is none.
func (n *network) farthest(flow, target []float64) float64 {
	longest := 2.0
	after := n.loads(target)
	for c, y := range n.loads(flow) {
		headroom := n.columns[c].headroom
		switch {
		case math.IsNaN(after[c]):
			return 0
		case after[c] > headroom*(1+unmetSlack):
			longest = math.Min(longest, math.Max(0, headroom-y)/(after[c]-y))
		}
	}
	return longest
}
