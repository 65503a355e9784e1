package solver

import "math"

// start spreads demand in proportion to room, callers first, and then chooses
// prices, callers last, that make every reduced cost positive.
func (j *joint) start() {
	n := j.net
	for r := range n.rows {
		j.spread(r, &n.hops[n.rows[r].hop], n.arc(r))
	}
	j.startBranches()
	for i := len(n.hops) - 1; i >= 0; i-- {
		j.startPrices(&n.hops[i])
	}
	tau := 0.0
	for a, x := range j.x {
		tau += x * j.z[a]
	}
	tau /= j.pairs
	for c := range n.columns {
		j.startCeilings(c, tau)
	}
}

// startCeilings prices the ceilings of a column's branches and what keeps their
// loads from being negative, and puts a little load on its branch above the knee
// where it has none.
func (j *joint) startCeilings(c int, tau float64) {
	n := j.net
	col := &n.columns[c]
	j.mu[col.first] = tau / j.slack[col.first]
	j.nu[col.first] = tau / j.y[col.first]
	raise := j.mu[col.first]
	j.p[c] += raise
	for b := col.first + 1; b < col.last; b++ {
		over := n.branches[b].curve.service + n.downstream(c, j.v) - j.p[c]
		j.nu[b] = math.Max(over, tau/n.branches[b].headroom)
		if j.y[b] == 0 {
			j.y[b] = math.Min(tau/j.nu[b], 0.5*n.branches[b].headroom)
			j.slack[b] -= j.y[b]
		}
		j.mu[b] = tau / j.slack[b]
	}
	h := &n.hops[col.hop]
	for r := h.firstRow; r < h.endRow; r++ {
		if a := n.arc(r) + c - h.firstCol; n.open[a] {
			j.z[a] += raise
		}
	}
}

func (j *joint) spread(r int, h *hop, base int) {
	n := j.net
	room := 0.0
	for k := range h.columns {
		if n.open[base+k] {
			room += n.columns[h.firstCol+k].headroom
		}
	}
	demand := n.demandOf(r, j.load)
	for k := range h.columns {
		if n.open[base+k] {
			j.x[base+k] = demand * n.columns[h.firstCol+k].headroom / room
			j.load[h.firstCol+k] += j.x[base+k]
		}
	}
}

// startBranches fills the branch below the knee first.
func (j *joint) startBranches() {
	n := j.net
	for c := range n.columns {
		rest := j.load[c]
		for b := n.columns[c].first; b < n.columns[c].last; b++ {
			room := n.branches[b].headroom
			j.y[b] = rest
			if b+1 < n.columns[c].last {
				j.y[b] = math.Min(rest, 0.95*room)
			}
			rest -= j.y[b]
			j.slack[b] = math.Max(room-j.y[b], 0.1*room)
		}
	}
}

// startPrices prices the columns of a hop by their slopes and its rows by their
// cheapest way less what a request could gain on average by taking it.
func (j *joint) startPrices(h *hop) {
	n := j.net
	for c := h.firstCol; c < h.endCol; c++ {
		col := &n.columns[c]
		for b := col.first; b < col.last; b++ {
			if slope, _ := n.branches[b].curve.slopes(math.Min(j.y[b], n.branches[b].headroom)); j.y[b] > 0 {
				j.p[c] = slope
			}
		}
		j.p[c] += n.downstream(c, j.v)
	}
	gain, total := 0.0, 0.0
	for r := h.firstRow; r < h.endRow; r++ {
		base := n.arc(r)
		j.v[r] = math.Inf(1)
		paid, demand := 0.0, 0.0
		for k := range h.columns {
			if a := base + k; n.open[a] {
				way := n.cost[a] + j.p[h.firstCol+k]
				j.v[r] = math.Min(j.v[r], way)
				paid += j.x[a] * way
				demand += j.x[a]
			}
		}
		gain += paid - j.v[r]*demand
		total += demand
	}
	margin := math.Max(gain/total, 1e-3)
	for r := h.firstRow; r < h.endRow; r++ {
		j.v[r] -= margin
		base := n.arc(r)
		for k := range h.columns {
			if a := base + k; n.open[a] {
				j.z[a] = n.cost[a] + j.p[h.firstCol+k] - j.v[r]
			}
		}
	}
}
