package solver

import "math"

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
