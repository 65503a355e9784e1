package solver

// cholesky factorises a symmetric positive definite matrix as L D L^T. Zeros
// are skipped, so that hops that do not meet cost nothing.
type cholesky struct {
	n      int
	matrix []float64 // upper triangle, row by row; after factor the multipliers
	pivot  []float64
	least  []float64 // pivots below this are rounding
}

func (m *cholesky) reset(n int) {
	m.n = n
	m.matrix = make([]float64, n*n)
	m.pivot = make([]float64, n)
	m.least = make([]float64, n)
}

func (m *cholesky) clear() { clear(m.matrix) }

// addStar adds what remains of a node with these weights to the columns from
// first on, once it is eliminated: sum is the sum of the weights.
func (m *cholesky) addStar(first int, weights []float64, sum float64) {
	for i, w := range weights {
		if w == 0 {
			continue
		}
		share := w / sum
		row := m.matrix[(first+i)*m.n+first+i:]
		rest := 0.0
		for k, other := range weights[i+1:] {
			row[k+1] -= share * other
			rest += other
		}
		// w - w w/sum without the subtraction.
		for _, other := range weights[:i] {
			rest += other
		}
		row[0] += share * rest
	}
}

// addProduct adds scale a a^T for a sparse vector a whose segments stand in the
// order of columns.
func (m *cholesky) addProduct(a []segment, scale float64) {
	for s := range a {
		for i, v := range a[s].weights {
			if v == 0 {
				continue
			}
			f := scale * a[s].scale * v
			row := m.matrix[(a[s].at+i)*m.n:]
			to := row[a[s].at+i:]
			g := f * a[s].scale
			for k, w := range a[s].weights[i:] {
				to[k] += g * w
			}
			for t := s + 1; t < len(a); t++ {
				to := row[a[t].at:]
				g := f * a[t].scale
				for k, w := range a[t].weights {
					to[k] += g * w
				}
			}
		}
	}
}

// factor eliminates all columns in order. One without a pivot that is more than
// rounding is left where it is.
func (m *cholesky) factor() {
	n := m.n
	for k := range n {
		m.least[k] = 1e-15 * m.matrix[k*n+k]
	}
	for k := range n {
		row := m.matrix[k*n+k : k*n+n]
		pivot := row[0]
		if !(pivot > m.least[k]) {
			m.pivot[k] = 0
			clear(row)
			continue
		}
		m.pivot[k] = pivot
		for i := 1; i < len(row); i++ {
			if row[i] == 0 {
				continue
			}
			f := row[i] / pivot
			to := m.matrix[(k+i)*n+k+i:]
			from := row[i:]
			to = to[:len(from)]
			for l, v := range from {
				to[l] -= f * v
			}
			row[i] = f
		}
	}
}

// solve overwrites b with the solution.
func (m *cholesky) solve(b []float64) {
	n := m.n
	for k := range n {
		v := b[k]
		for i, w := range m.matrix[k*n+k+1 : k*n+n] {
			b[k+1+i] -= w * v
		}
		if m.pivot[k] > 0 {
			b[k] = v / m.pivot[k]
		} else {
			b[k] = 0
		}
	}
	for k := n - 1; k >= 0; k-- {
		sum := b[k]
		for i, w := range m.matrix[k*n+k+1 : k*n+n] {
			sum -= w * b[k+1+i]
		}
		b[k] = sum
	}
}

// laplacian is a symmetric, diagonally dominant matrix with no positive entry
// off the diagonal, kept as what makes it up: the weights between its nodes and
// the excess of each diagonal over its row. Eliminating on these (Grassmann,
// Taksar and Heyman 1985) needs no subtraction, so that weights of 1e-15 beside
// weights of 1e15 keep all their digits. That is what lets the interior-point
// method close the gap next to the ceilings, where ordinary factorisations stall.
type laplacian struct {
	n      int
	weight []float64 // upper triangle, row by row; after factor the multipliers
	excess []float64
	pivot  []float64
}

func (m *laplacian) reset(n int) {
	m.n = n
	m.weight = resize(m.weight, n*n)
	m.excess = resize(m.excess, n)
	m.pivot = resize(m.pivot, n)
}

func (m *laplacian) clear() {
	clear(m.weight)
	clear(m.excess)
}

// addStar adds what remains of a node with these weights to all others once it
// is eliminated: sum is the sum of the weights.
func (m *laplacian) addStar(weights []float64, sum float64) {
	n := m.n
	for i, w := range weights {
		if w == 0 {
			continue
		}
		w /= sum
		to := m.weight[i*n+i+1 : i*n+n]
		from := weights[i+1:]
		from = from[:len(to)]
		for j, f := range from {
			to[j] += w * f
		}
	}
}

// factor eliminates all nodes in order.
func (m *laplacian) factor() {
	n := m.n
	for k := range n {
		row := m.weight[k*n+k+1 : k*n+n]
		pivot := m.excess[k]
		for _, w := range row {
			pivot += w
		}
		m.pivot[k] = pivot
		if pivot == 0 {
			continue
		}
		for i, w := range row {
			if w == 0 {
				continue
			}
			share := w / pivot
			i2 := k + 1 + i
			m.excess[i2] += share * m.excess[k]
			to := m.weight[i2*n+i2+1 : i2*n+n]
			from := row[i+1:]
			from = from[:len(to)]
			for j, f := range from {
				to[j] += share * f
			}
		}
		for i, w := range row {
			row[i] = w / pivot
		}
	}
}

// solve overwrites b with the solution; a node without any weight gets 0.
func (m *laplacian) solve(b []float64) {
	n := m.n
	for k := range n {
		v := b[k]
		for i, w := range m.weight[k*n+k+1 : k*n+n] {
			b[k+1+i] += w * v
		}
		if m.pivot[k] > 0 {
			b[k] = v / m.pivot[k]
		} else {
			b[k] = 0
		}
	}
	for k := n - 1; k >= 0; k-- {
		sum := b[k]
		for i, w := range m.weight[k*n+k+1 : k*n+n] {
			sum += w * b[k+1+i]
		}
		b[k] = sum
	}
}
