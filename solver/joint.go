package solver

import "math"

// joint is the interior-point method of [interior] on a network: the loads of a
// caller's localities are unknowns of its own hop and demand of the next, so
// that all hops find their prices together. Its optimality conditions are
//
//	cost + p_l - v_s - z = 0,                                   x z = tau share
//	f_b'(y_b) + sum of rate_s v_s over calls + mu - nu - p_l = 0,  slack mu = tau, y nu = tau
//
// p_l includes what a request in l costs in the hops below. nu keeps the load
// of a branch from being negative. That of a branch below the knee is positive
// at the optimum anyway, but on the way there flows and loads differ: without a
// nu it runs into 0, and no further step is possible.
type joint struct {
	net *network

	x, z, dx, dz               []float64 // per arc
	weight                     []float64 // x/z
	arcRes, arcTerm, complete  []float64
	v, dv                      []float64 // per row
	rowRes, rowSum, rowTerm    []float64
	p, dp, load, dload, link   []float64 // per column
	give, giveTerm, through    []float64
	still, rest                []float64
	y, dy, slack, dslack       []float64 // per branch
	mu, dmu, nu, dnu           []float64
	nodeRes, headroomRes, bend []float64
	branchGive, branchTerm     []float64
	compHeadroom, compLow      []float64
	system                     cholesky
	segments                   []segment
	pairs                      float64 // number of complementarity conditions
	floor, miss                float64 // as in interior
	iterations                 int
	bestX, bestP               []float64
	bestMiss, bestBad          float64
	betterAt                   int // the last iteration that was better in one of them
}

const (
	// jointGap is where iterations end. A Cholesky factorisation carries no
	// further next to the ceilings, and nobody could tell the difference.
	jointGap = 1e-9
	// jointPatience is how many iterations may pass without a better iterate, or
	// one in which clearly less of the demand is still on no way.
	jointPatience = 30
)

func newJoint(n *network) *joint {
	j := &joint{net: n, bestMiss: math.Inf(1), bestBad: math.Inf(1)}
	sized := func(size int, slices ...*[]float64) {
		block := make([]float64, size*len(slices))
		for i, s := range slices {
			*s = block[i*size : (i+1)*size : (i+1)*size]
		}
	}
	sized(len(n.cost), &j.x, &j.z, &j.dx, &j.dz, &j.weight, &j.arcRes, &j.arcTerm, &j.complete, &j.bestX)
	sized(len(n.rows), &j.v, &j.dv, &j.rowRes, &j.rowSum, &j.rowTerm)
	sized(len(n.columns), &j.p, &j.dp, &j.load, &j.dload, &j.link, &j.give, &j.giveTerm, &j.through, &j.still, &j.rest, &j.bestP)
	sized(len(n.branches), &j.y, &j.dy, &j.slack, &j.dslack, &j.mu, &j.dmu, &j.nu, &j.dnu,
		&j.nodeRes, &j.headroomRes, &j.bend, &j.branchGive, &j.branchTerm, &j.compHeadroom, &j.compLow)
	j.system.reset(len(n.columns))
	for _, open := range n.open {
		if open {
			j.pairs++
		}
	}
	j.pairs += float64(2 * len(n.branches))
	return j
}

// solve iterates from a cold start; bestX and bestP are the answer.
func (j *joint) solve() {
	j.start()
	j.residuals()
	for j.iterations = 0; j.iterations < maxIterations; j.iterations++ {
		tau, done := j.progress()
		if done || math.IsNaN(tau) || j.iterations-j.betterAt > jointPatience || !j.advance(j.bestDirection(tau)) {
			return
		}
	}
}

// bestDirection leaves a direction behind and returns how far it may be gone.
func (j *joint) bestDirection(tau float64) float64 {
	j.factor()
	j.aim(0, 0)
	j.direction()
	centre := j.tauAfter(min(1, j.longestStep())) / tau
	j.aim(nextTau(tau, centre, j.floor, j.miss), 1)
	j.direction()
	corrected := j.longestStep()
	if corrected < shortStep {
		j.aim(0.5*tau, 0)
		j.direction()
		return j.longestStep()
	}
	return corrected
}

// progress measures the gap, remembers the best iterate and reports whether the
// gap is closed.
func (j *joint) progress() (tau float64, done bool) {
	n := j.net
	gap, size, miss, bad, rate := 0.0, 0.0, 0.0, 0.0, 0.0
	for a, x := range j.x {
		gap += x * j.z[a]
		size += x * n.cost[a]
		miss += x * math.Abs(j.arcRes[a])
	}
	for b, y := range j.y {
		gap += j.slack[b]*j.mu[b] + y*j.nu[b]
		first, _ := n.branches[b].curve.slopes(y)
		size += y * first
		miss += y * math.Abs(j.nodeRes[b])
		bad += math.Abs(j.headroomRes[b])
	}
	for c, y := range j.load {
		rate += y
		bad += math.Abs(j.link[c])
	}
	for _, r := range j.rowRes {
		bad += math.Abs(r)
	}
	j.floor, j.miss = 0.1*jointGap*size/j.pairs, miss/j.pairs
	off := (gap+miss)/math.Max(size, 1e-9*rate) + bad/rate
	if off < j.bestMiss {
		j.bestMiss, j.betterAt = off, j.iterations
		copy(j.bestX, j.x)
		copy(j.bestP, j.p)
	}
	if bad < 0.9*j.bestBad {
		j.bestBad, j.betterAt = bad, j.iterations
	}
	done = gap+miss <= jointGap*size+1e-12*rate && bad <= 1e-9*rate
	return gap / j.pairs, done
}

// start spreads demand in proportion to headroom, callers first, and then chooses
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
	headroom := 0.0
	for k := range h.columns {
		if n.open[base+k] {
			headroom += n.columns[h.firstCol+k].headroom
		}
	}
	demand := n.demandOf(r, j.load)
	for k := range h.columns {
		if n.open[base+k] {
			j.x[base+k] = demand * n.columns[h.firstCol+k].headroom / headroom
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
			headroom := n.branches[b].headroom
			j.y[b] = rest
			if b+1 < n.columns[c].last {
				j.y[b] = math.Min(rest, 0.95*headroom)
			}
			rest -= j.y[b]
			j.slack[b] = math.Max(headroom-j.y[b], 0.1*headroom)
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

// longestStep is the largest step that keeps everything from being negative.
func (j *joint) longestStep() float64 {
	inverse := 0.0
	shrink := func(values, changes []float64) {
		for i, v := range values {
			if -changes[i] > inverse*v {
				inverse = -changes[i] / v
			}
		}
	}
	shrink(j.x, j.dx)
	shrink(j.z, j.dz)
	shrink(j.y, j.dy)
	shrink(j.slack, j.dslack)
	shrink(j.mu, j.dmu)
	shrink(j.nu, j.dnu)
	return 1 / inverse
}

// tauAfter is the mean complementarity after a step of that length.
func (j *joint) tauAfter(step float64) float64 {
	gap := 0.0
	for a, x := range j.x {
		gap += (x + step*j.dx[a]) * (j.z[a] + step*j.dz[a])
	}
	for b, q := range j.slack {
		gap += (q + step*j.dslack[b]) * (j.mu[b] + step*j.dmu[b])
		gap += (j.y[b] + step*j.dy[b]) * (j.nu[b] + step*j.dnu[b])
	}
	return gap / j.pairs
}

// advance goes along the direction, shorter where the curves bend too much for
// it. It returns false when there is no way on.
func (j *joint) advance(step float64) bool {
	step = min(1, nearBoundary*step)
	if math.IsNaN(step) {
		return false
	}
	before, gap := j.nodeMiss(0), j.tauAfter(0)*j.pairs
	for range 20 {
		if j.nodeMiss(step) <= before+0.5*gap {
			break
		}
		step /= 2
	}
	if step < 1e-9 {
		return false
	}
	move := func(values, changes []float64) {
		for i := range values {
			values[i] += step * changes[i]
		}
	}
	move(j.x, j.dx)
	move(j.z, j.dz)
	move(j.v, j.dv)
	move(j.p, j.dp)
	move(j.y, j.dy)
	move(j.slack, j.dslack)
	move(j.mu, j.dmu)
	move(j.nu, j.dnu)
	j.residuals()
	return true
}

// nodeMiss is how far prices are from the slopes of the curves after a step of
// that length, weighted by load.
func (j *joint) nodeMiss(step float64) float64 {
	n := j.net
	miss := 0.0
	for c := range n.columns {
		col := &n.columns[c]
		other := n.downstream(c, j.v) + step*n.downstream(c, j.dv) - j.p[c] - step*j.dp[c]
		for b := col.first; b < col.last; b++ {
			y := j.y[b] + step*j.dy[b]
			slope := n.branches[b].curve.slope(y)
			miss += y * math.Abs(slope+other+j.mu[b]+step*j.dmu[b]-j.nu[b]-step*j.dnu[b])
		}
	}
	return miss
}
