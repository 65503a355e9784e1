package solver

import "math"

// point is an iterate of the interior-point method.
type point struct {
	x, z       []float64 // flows and their reduced costs, per arc
	v          []float64 // price of demand, per source
	p          []float64 // price of load, per locality
	y          []float64 // load, per locality; kept apart from the sum of x, see link
	slack, mu  []float64 // headroom left and the price of the ceiling, per locality
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
// weighted graph Laplacian plus a diagonal; see cholesky.go.
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

// run iterates, so often at most; it reports whether the gap was closed.
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

// progress measures the gap and reports whether it is closed.
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

// longestStep is the largest step that keeps everything from being negative;
// it may be infinite.
func (in *interior) longestStep() float64 {
	// One over the step, so that no division stands in the loop's way.
	inverse := 0.0
	for a, x := range in.x {
		if -in.dx[a] > inverse*x {
			inverse = -in.dx[a] / x
		}
		if z := in.z[a]; -in.dz[a] > inverse*z {
			inverse = -in.dz[a] / z
		}
	}
	for l, q := range in.slack {
		if y := in.y[l]; -in.dy[l] > inverse*y {
			inverse = -in.dy[l] / y
		}
		if -in.dslack[l] > inverse*q {
			inverse = -in.dslack[l] / q
		}
		if mu := in.mu[l]; -in.dmu[l] > inverse*mu {
			inverse = -in.dmu[l] / mu
		}
	}
	return 1 / inverse
}

// tauAfter is the mean complementarity after a step of that length.
func (in *interior) tauAfter(step float64) float64 {
	gap := 0.0
	for a, x := range in.x {
		gap += (x + step*in.dx[a]) * (in.z[a] + step*in.dz[a])
	}
	pairs := float64(in.arcs)
	if !in.prog.forced {
		pairs += float64(len(in.slack))
		for l, q := range in.slack {
			gap += (q + step*in.dslack[l]) * (in.mu[l] + step*in.dmu[l])
		}
	}
	return gap / pairs
}

// missShare is the part of what prices miss by that the next complementarity
// stays above.
const missShare = 0.1

// nextTau is the mean complementarity that a corrected direction aims at. What
// prices miss the slopes of the curves by halves at best with every step while a
// locality loses most of its load. A gap that closes sooner has driven flows and
// ceilings against their bounds, and only tiny steps remain for the rest.
func nextTau(tau, centre, floor, miss float64) float64 {
	return math.Max(math.Max(centre*centre*centre*tau, floor), math.Min(tau, missShare*miss))
}

// nearBoundary is how much of the way to the boundary a step may go.
const nearBoundary = 0.995

// advance goes along the direction, shorter where the curves bend too much for
// it. It returns false when there is no way on.
func (in *interior) advance(step float64) bool {
	step = min(1, nearBoundary*step)
	if math.IsNaN(step) {
		return false
	}
	if !in.prog.forced {
		before, gap := in.nodeMiss(0), in.tauAfter(0)*float64(in.arcs)
		for range 20 {
			if in.nodeMiss(step) <= before+0.5*gap {
				break
			}
			step /= 2
		}
	}
	if step < 1e-9 {
		return false
	}
	in.move(step)
	in.residuals()
	return true
}

// nodeMiss is how far prices are from the slopes of the curves after a step of
// that length, weighted by load.
func (in *interior) nodeMiss(step float64) float64 {
	miss := 0.0
	for l, y := range in.y {
		y += step * in.dy[l]
		slope := in.prog.curves[l].slope(y)
		miss += y * math.Abs(slope+in.mu[l]+step*in.dmu[l]-in.p[l]-step*in.dp[l])
	}
	return miss
}

func (in *interior) move(step float64) {
	for a := range in.x {
		in.x[a] += step * in.dx[a]
		in.z[a] += step * in.dz[a]
	}
	for s := range in.v {
		in.v[s] += step * in.dv[s]
	}
	for l := range in.p {
		in.p[l] += step * in.dp[l]
		in.y[l] += step * in.dy[l]
		in.slack[l] += step * in.dslack[l]
		in.mu[l] += step * in.dmu[l]
	}
}
