package solver

// residuals brings every derived quantity up to date with the iterate.
func (j *joint) residuals() {
	n := j.net
	clear(j.load)
	for b, y := range j.y {
		j.load[n.branches[b].column] += y
	}
	for c, y := range j.load {
		j.link[c] = -y
	}
	for r := range n.rows {
		h, base := &n.hops[n.rows[r].hop], n.arc(r)
		sum := 0.0
		for k := range h.columns {
			a, c := base+k, h.firstCol+k
			if !n.open[a] {
				continue
			}
			sum += j.x[a]
			j.link[c] += j.x[a]
			j.arcRes[a] = n.cost[a] + j.p[c] - j.v[r] - j.z[a]
		}
		j.rowRes[r] = n.demandOf(r, j.load) - sum
	}
	for c := range n.columns {
		col := &n.columns[c]
		below := n.downstream(c, j.v)
		for b := col.first; b < col.last; b++ {
			br := &n.branches[b]
			first, second := br.curve.slopes(j.y[b])
			j.bend[b] = second
			j.nodeRes[b] = first + below + j.mu[b] - j.nu[b] - j.p[c]
			j.headroomRes[b] = br.headroom - j.y[b] - j.slack[b]
		}
	}
}

// segment is a stretch of a sparse vector over columns: weights / -scale from a
// column on.
type segment struct {
	at      int
	weights []float64
	scale   float64
}

// factor builds and factorises the system in the prices of the columns:
//
//	sum over rows of a star of weights  +  sum over columns of through a a^T
//
// where a is 1 at the column and, for the rows r whose demand it makes,
// -rate_r weight / rowSum_r at the columns of the next hop: what the price there
// tells this hop. Stars are what remains of rows once they are eliminated;
// through is give in series with the rows below.
func (j *joint) factor() {
	n := j.net
	j.system.clear()
	for r := range n.rows {
		h, base := &n.hops[n.rows[r].hop], n.arc(r)
		sum := 0.0
		for a := base; a < base+h.columns; a++ {
			if n.open[a] {
				j.weight[a] = j.x[a] / j.z[a]
				sum += j.weight[a]
			}
		}
		j.rowSum[r] = sum
		j.system.addStar(h.firstCol, j.weight[base:base+h.columns], sum)
	}
	for c := range n.columns {
		col := &n.columns[c]
		give := 0.0
		for b := col.first; b < col.last; b++ {
			j.branchGive[b] = 1 / (j.bend[b] + j.mu[b]/j.slack[b] + j.nu[b]/j.y[b])
			give += j.branchGive[b]
		}
		j.give[c] = give
		resist := 1 / give
		j.segments = append(j.segments[:0], segment{at: c, weights: minusOne, scale: 1})
		for _, r := range col.calls {
			w, base := &n.rows[r], n.arc(r)
			h := &n.hops[w.hop]
			resist += w.rate * w.rate / j.rowSum[r]
			j.segments = append(j.segments, segment{at: h.firstCol, weights: j.weight[base : base+h.columns], scale: w.rate / j.rowSum[r]})
		}
		j.through[c] = 1 / resist
		j.system.addProduct(j.segments, j.through[c])
	}
	j.system.factor()
}

var minusOne = []float64{-1}

// aim sets the complementarity that the next direction goes for, as
// [interior.aim] does.
func (j *joint) aim(tau, correct float64) {
	n := j.net
	for i := range n.hops {
		h := &n.hops[i]
		a := h.firstArc
		for range h.endRow - h.firstRow {
			for c := h.firstCol; c < h.endCol; c++ {
				if n.open[a] {
					j.complete[a] = tau*n.columns[c].share - j.x[a]*j.z[a] - correct*j.dx[a]*j.dz[a]
				}
				a++
			}
		}
	}
	for b := range j.y {
		j.compHeadroom[b] = tau - j.slack[b]*j.mu[b] - correct*j.dslack[b]*j.dmu[b]
		j.compLow[b] = tau - j.y[b]*j.nu[b] - correct*j.dy[b]*j.dnu[b]
	}
}

// direction solves for the Newton step towards the aim.
func (j *joint) direction() {
	n := j.net
	rhs := j.dp
	copy(rhs, j.link)
	for c := range n.columns {
		col := &n.columns[c]
		j.giveTerm[c] = 0
		for b := col.first; b < col.last; b++ {
			term := j.compLow[b]/j.y[b] - j.nodeRes[b] - (j.compHeadroom[b]-j.mu[b]*j.headroomRes[b])/j.slack[b]
			j.branchTerm[b] = term
			j.giveTerm[c] += j.branchGive[b] * term
		}
	}
	for r := range n.rows {
		h, base := &n.hops[n.rows[r].hop], n.arc(r)
		sum := 0.0
		for a := base; a < base+h.columns; a++ {
			if n.open[a] {
				j.arcTerm[a] = j.complete[a]/j.x[a] - j.arcRes[a]
				sum += j.weight[a] * j.arcTerm[a]
			}
		}
		j.rowTerm[r] = (j.rowRes[r] - sum) / j.rowSum[r]
		for k := range h.columns {
			if a := base + k; n.open[a] {
				rhs[h.firstCol+k] += j.weight[a] * (j.arcTerm[a] + j.rowTerm[r])
			}
		}
	}
	for c := range n.columns {
		// What the column's load would do if no price moved.
		still := j.through[c] * (j.giveTerm[c]/j.give[c] - j.calledTerm(c))
		j.still[c] = still
		rhs[c] -= still
		for _, r := range n.columns[c].calls {
			h, base := &n.hops[n.rows[r].hop], n.arc(r)
			f := still * n.rows[r].rate / j.rowSum[r]
			for k := range h.columns {
				rhs[h.firstCol+k] += f * j.weight[base+k]
			}
		}
	}
	j.system.solve(rhs)
	j.backSubstitute()
	j.refine()
}

// refine corrects the direction by what it misses: that flows into a column
// change as much as its load.
func (j *joint) refine() {
	n := j.net
	rest := j.rest
	for c := range rest {
		rest[c] = j.link[c] - j.dload[c]
	}
	for r := range n.rows {
		h, base := &n.hops[n.rows[r].hop], n.arc(r)
		for k := range h.columns {
			if a := base + k; n.open[a] {
				rest[h.firstCol+k] += j.dx[a]
			}
		}
	}
	j.system.solve(rest)
	for c, correction := range rest {
		j.dp[c] += correction
	}
	j.backSubstitute()
}

// calledTerm is what the rows that a column's load makes bring to its price.
func (j *joint) calledTerm(c int) float64 {
	sum := 0.0
	for _, r := range j.net.columns[c].calls {
		sum += j.net.rows[r].rate * j.rowTerm[r]
	}
	return sum
}

// backSubstitute finds everything else from the change of prices.
func (j *joint) backSubstitute() {
	n := j.net
	for r := range n.rows {
		h, base := &n.hops[n.rows[r].hop], n.arc(r)
		sum := 0.0
		for k := range h.columns {
			sum += j.weight[base+k] * j.dp[h.firstCol+k]
		}
		j.dv[r] = j.rowTerm[r] + sum/j.rowSum[r]
	}
	for c := range n.columns {
		// dv lacks what the load of its column adds, which is in through.
		tension := j.dp[c] - n.downstream(c, j.dv) + j.calledTerm(c)
		j.dload[c] = j.still[c] + j.through[c]*tension
		for _, r := range n.columns[c].calls {
			j.dv[r] += n.rows[r].rate * j.dload[c] / j.rowSum[r]
		}
	}
	for r := range n.rows {
		h, base := &n.hops[n.rows[r].hop], n.arc(r)
		for k := range h.columns {
			if a := base + k; n.open[a] {
				j.dx[a] = j.weight[a] * (j.dv[r] - j.dp[h.firstCol+k] + j.arcTerm[a])
				j.dz[a] = (j.complete[a] - j.z[a]*j.dx[a]) / j.x[a]
			}
		}
	}
	for b := range j.y {
		c := n.branches[b].column
		// The changes of a column's branches add up to that of its load.
		j.dy[b] = j.branchGive[b] * (j.dload[c]/j.give[c] + j.branchTerm[b] - j.giveTerm[c]/j.give[c])
		j.dslack[b] = j.headroomRes[b] - j.dy[b]
		j.dmu[b] = (j.compHeadroom[b] - j.mu[b]*j.dslack[b]) / j.slack[b]
		j.dnu[b] = (j.compLow[b] - j.nu[b]*j.dy[b]) / j.y[b]
	}
}
