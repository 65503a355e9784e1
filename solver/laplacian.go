package solver

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
