package solver

// residuals brings every derived quantity up to date with the iterate.
func (in *interior) residuals() {
	p := in.prog
	n := p.localities
	for l, y := range in.y {
		in.link[l] = -y
	}
	for s := range p.sources {
		sum := 0.0
		for l, x := range in.x[s*n : (s+1)*n] {
			sum += x
			in.link[l] += x
		}
		in.rowRes[s] = p.demand[s] - sum
	}
	for l := range n {
		if p.forced {
			continue
		}
		first, second := p.curves[l].slopes(in.y[l])
		in.nodeRes[l] = first + in.mu[l] - in.p[l]
		in.bend[l] = second
		in.headroomRes[l] = p.headroom[l] - in.y[l] - in.slack[l]
	}
	for s := range p.sources {
		for l := range n {
			a := s*n + l
			if !p.open[a] {
				continue
			}
			r := p.cost[a] + in.p[l] - in.v[s] - in.z[a]
			if p.spring != nil {
				r += p.spring[a] * (in.x[a] - p.target[a])
			}
			in.arcRes[a] = r
		}
	}
}

// factor builds and factorises the system in the prices.
func (in *interior) factor() {
	p := in.prog
	n := p.localities
	in.system.clear()
	for s := range p.sources {
		sum := 0.0
		row := in.weight[s*n : (s+1)*n]
		for l := range n {
			a := s*n + l
			if !p.open[a] {
				continue
			}
			e := in.z[a] / in.x[a]
			if p.spring != nil {
				e += p.spring[a]
			}
			row[l] = 1 / e
			sum += row[l]
		}
		in.rowWeight[s] = sum
		in.system.addStar(row, sum)
	}
	for l := range n {
		if p.forced {
			in.give[l] = 0
			continue
		}
		in.give[l] = 1 / (in.bend[l] + in.mu[l]/in.slack[l])
		in.system.excess[l] = in.give[l]
	}
	in.system.factor()
}

// aim sets the complementarity that the next direction goes for; with correct > 0
// it takes that much of the product of the last direction's components into account.
func (in *interior) aim(tau, correct float64) {
	p := in.prog
	n := p.localities
	for s := range p.sources {
		for l := range n {
			a := s*n + l
			if !p.open[a] {
				continue
			}
			c := tau*p.share[l] - in.x[a]*in.z[a]
			if correct > 0 {
				c -= correct * in.dx[a] * in.dz[a]
			}
			in.complement[a] = c
		}
	}
	for l := range n {
		c := tau - in.slack[l]*in.mu[l]
		if correct > 0 {
			c -= correct * in.dslack[l] * in.dmu[l]
		}
		in.compHeadroom[l] = c
	}
}

// direction solves for the Newton step towards the aim.
func (in *interior) direction() {
	p := in.prog
	n := p.localities
	for l := range n {
		if p.forced {
			in.rhs[l] = in.link[l]
			continue
		}
		in.giveTerm[l] = -in.nodeRes[l] - (in.compHeadroom[l]-in.mu[l]*in.headroomRes[l])/in.slack[l]
		in.rhs[l] = in.link[l] - in.give[l]*in.giveTerm[l]
	}
	for s := range p.sources {
		sum := 0.0
		for l := range n {
			a := s*n + l
			if p.open[a] {
				in.arcTerm[a] = in.complement[a]/in.x[a] - in.arcRes[a]
				sum += in.weight[a] * in.arcTerm[a]
			}
		}
		in.rowTerm[s] = (in.rowRes[s] - sum) / in.rowWeight[s]
		for l := range n {
			if a := s*n + l; p.open[a] {
				in.rhs[l] += in.weight[a] * (in.arcTerm[a] + in.rowTerm[s])
			}
		}
	}
	copy(in.dp, in.rhs)
	in.system.solve(in.dp)
	for s := range p.sources {
		sum := 0.0
		for l := range n {
			sum += in.weight[s*n+l] * in.dp[l]
		}
		in.dv[s] = in.rowTerm[s] + sum/in.rowWeight[s]
	}
	for s := range p.sources {
		for l := range n {
			a := s*n + l
			if !p.open[a] {
				continue
			}
			in.dx[a] = in.weight[a] * (in.dv[s] - in.dp[l] + in.arcTerm[a])
			in.dz[a] = (in.complement[a] - in.z[a]*in.dx[a]) / in.x[a]
		}
	}
	for l := range n {
		if p.forced {
			continue
		}
		in.dy[l] = in.give[l] * (in.dp[l] + in.giveTerm[l])
		in.dslack[l] = in.headroomRes[l] - in.dy[l]
		in.dmu[l] = (in.compHeadroom[l] - in.mu[l]*in.dslack[l]) / in.slack[l]
	}
}
