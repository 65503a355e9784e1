package solver

import "math"

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
// tells whether there is any.
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
// their rooms; more than 1 where these fit, 0 where there is none.
func (n *network) farthest(flow, target []float64) float64 {
	longest := 2.0
	after := n.loads(target)
	for c, y := range n.loads(flow) {
		room := n.columns[c].headroom
		switch {
		case math.IsNaN(after[c]):
			return 0
		case after[c] > room*(1+unmetSlack):
			longest = math.Min(longest, math.Max(0, room-y)/(after[c]-y))
		}
	}
	return longest
}
