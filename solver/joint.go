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

// progress measures the gap, remembers the best iterate and tells whether the
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
