package solver

import "math"

// point is an iterate of the interior-point method.
type point struct {
	x, z       []float64 // flows and their reduced costs, per arc
	v          []float64 // price of demand, per source
	p          []float64 // price of load, per locality
	y          []float64 // load, per locality; kept apart from the sum of x, see link
	slack, mu  []float64 // room left and the price of the ceiling, per locality
	iterations int
}

// interior is the working memory of the method, reused between programs.
//
// It is a primal-dual predictor-corrector method (Mehrotra 1992) on the
// optimality conditions
//
//	cost + spring (x - target) + p_l - v_s - z = 0,   x z = tau share
//	f'(y) + mu - p = 0,                                   slack mu = tau
//
// Each Newton step is reduced to one system in the prices p, whose matrix is a
// weighted graph Laplacian plus a diagonal; see laplacian.go.
type interior struct {
	point

	prog                  *program
	dx, dz                []float64
	dv, dp, dy            []float64
	dslack, dmu           []float64
	weight                []float64 // E = 1 / (spring + z/x), per arc
	arcRes, arcTerm       []float64 // residual of the arc condition; R in the reduction
	rowWeight, rowTerm    []float64
	rowRes                []float64
	give, giveTerm        []float64 // G and T of a locality
	nodeRes, headroomRes  []float64
	link                  []float64 // sum of x less y: curves are stiff and must not see the rounding of large flows
	bend, rhs, complement []float64
	compHeadroom          []float64
	system                laplacian
	arcs                  int     // number of open arcs
	floor                 float64 // complementarity below which there's nothing to gain
	miss                  float64 // what prices miss by, in the unit of complementarity

	best     point // the best iterate so far: only x and p are kept
	bestMiss float64
	bestAt   int
}

const (
	// relativeGap is where iterations end: complementarity against cost.
	relativeGap   = 1e-11
	maxIterations = 120
	// shortStep is a step that isn't worth its factorisation.
	shortStep = 0.1
	// patience is how many iterations may pass without a better iterate.
	patience = 30
)

func resize(s []float64, n int) []float64 {
	if cap(s) < n {
		return make([]float64, n)
	}
	s = s[:n]
	clear(s)
	return s
}

func (in *interior) reset(p *program) {
	n, s, l := p.sources*p.localities, p.sources, p.localities
	in.prog = p
	for _, b := range []*[]float64{&in.x, &in.z, &in.dx, &in.dz, &in.weight, &in.arcRes, &in.arcTerm, &in.complement} {
		*b = resize(*b, n)
	}
	for _, b := range []*[]float64{&in.v, &in.dv, &in.rowWeight, &in.rowTerm, &in.rowRes} {
		*b = resize(*b, s)
	}
	for _, b := range []*[]float64{&in.p, &in.slack, &in.mu, &in.y, &in.dp, &in.dslack, &in.dmu, &in.give, &in.giveTerm,
		&in.nodeRes, &in.headroomRes, &in.link, &in.dy, &in.bend, &in.rhs, &in.compHeadroom} {
		*b = resize(*b, l)
	}
	in.best.x, in.best.p = resize(in.best.x, n), resize(in.best.p, l)
	in.system.reset(l)
	in.arcs = 0
	for _, o := range p.open {
		if o {
			in.arcs++
		}
	}
	in.iterations, in.bestAt, in.bestMiss = 0, 0, math.Inf(1)
}

// solve runs the method, from warm prices if there are any; if these do not lead
// to the end soon, again without them. The result stays valid until the next call.
func (in *interior) solve(p *program) *point {
	in.reset(p)
	if p.warmPrices != nil {
		in.startWarm()
		if in.run(warmIterations) {
			return &in.best
		}
		wasted := in.iterations
		in.reset(p)
		in.start()
		in.run(maxIterations)
		in.best.iterations += wasted
		return &in.best
	}
	in.start()
	in.run(maxIterations)
	return &in.best
}

// run iterates, so often at most; it tells whether the gap was closed.
func (in *interior) run(most int) bool {
	in.residuals()
	for in.iterations = 0; in.iterations < most; in.iterations++ {
		tau, done := in.progress()
		if done {
			return true
		}
		if math.IsNaN(tau) || in.iterations-in.bestAt > patience || !in.advance(in.bestDirection(tau)) {
			break
		}
	}
	return false
}

// bestDirection leaves a direction behind and returns how far it may be gone.
func (in *interior) bestDirection(tau float64) float64 {
	in.factor()
	in.aim(0, 0)
	in.direction()
	step := min(1, in.longestStep())
	centre := in.tauAfter(step) / tau
	in.aim(nextTau(tau, centre, in.floor, in.miss), 1)
	in.direction()
	corrected := in.longestStep()
	if corrected < shortStep {
		// Off the central path, where the correction misleads: go back to it.
		in.aim(0.5*tau, 0)
		in.direction()
		return in.longestStep()
	}
	return corrected
}

// progress measures the gap and tells whether it is closed.
func (in *interior) progress() (tau float64, done bool) {
	p := in.prog
	gap, size, miss, bad := 0.0, 0.0, 0.0, 0.0
	for a, x := range in.x {
		gap += x * in.z[a]
		size += x * p.cost[a]
		miss += x * math.Abs(in.arcRes[a])
	}
	pairs := float64(in.arcs)
	rate := 0.0
	for l, y := range in.y {
		rate += y
		bad += math.Abs(in.link[l])
		if p.forced {
			size += y * p.curves[l].slope(p.headroom[l])
			continue
		}
		pairs++
		gap += in.slack[l] * in.mu[l]
		size += math.Abs(y * in.p[l])
		miss += y * math.Abs(in.nodeRes[l])
		bad += math.Abs(in.headroomRes[l])
	}
	for _, r := range in.rowRes {
		bad += math.Abs(r)
	}
	in.floor, in.miss = 0.1*relativeGap*size/pairs, miss/pairs
	in.remember((gap+miss)/math.Max(size, 1e-9*rate) + bad/rate)
	done = gap+miss <= relativeGap*size+1e-12*rate && bad <= 1e-10*rate
	return gap / pairs, done
}

// remember keeps the iterate if it misses the optimum by less than any before.
func (in *interior) remember(miss float64) {
	if !(miss < in.bestMiss) {
		return
	}
	in.bestMiss, in.bestAt = miss, in.iterations
	in.best.x = append(in.best.x[:0], in.x...)
	in.best.p = append(in.best.p[:0], in.p...)
	in.best.iterations = in.iterations
}
