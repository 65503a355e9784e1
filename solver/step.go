package solver

import "math"

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
