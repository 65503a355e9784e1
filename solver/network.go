package solver

// network is all hops of services that call each other as one convex problem:
//
//	minimise  sum_a cost_a x_a + sum_l f_l(y_l)
//	subject to  sum_l x_sl = demand_s,  x >= 0,  y_l = sum_s x_sl <= room_l
//
// where demand_s of a caller's locality c is rate_s y_c. A row is a source of
// one of the services, a column one of its localities; the arcs of a hop are
// stored row by row.
type network struct {
	hops     []hop
	rows     []row
	columns  []column
	branches []branch
	cost     []float64
	open     []bool
}

// hop is the part of the network that belongs to one service. Callers come
// before those they call.
type hop struct {
	service           int // index into the group
	firstRow, endRow  int
	firstCol, endCol  int
	firstArc, columns int
}

type row struct {
	source int     // of the service
	hop    int     // index into hops
	demand float64 // where from < 0
	from   int     // column whose load makes the demand, < 0 for a source of its own
	rate   float64 // requests per request of that column
}

type column struct {
	locality    int // of the service
	hop         int // index into hops
	curve       *curve
	headroom    float64 // of the answer; branches are a little wider together
	share       float64 // barrier weight, as in program
	calls       []int   // rows whose demand this column's load makes, in order
	first, last int     // its branches [first, last)
}

// branch is a stretch of a locality's curve that is smooth: up to the knee of
// its queue cost, or beyond it. The loads of its branches add up to a column's.
type branch struct {
	column   int
	curve    curve
	headroom float64
}

// arc is the index of the arc from a row to the first column of its hop.
func (n *network) arc(r int) int {
	h := &n.hops[n.rows[r].hop]
	return h.firstArc + (r-h.firstRow)*h.columns
}

// demandOf is the demand of a row at these loads of the columns.
func (n *network) demandOf(r int, load []float64) float64 {
	if w := &n.rows[r]; w.from >= 0 {
		return w.rate * load[w.from]
	}
	return n.rows[r].demand
}

// addColumn appends a locality with its branches.
func (n *network) addColumn(locality int, c *curve, headroom float64) {
	col := column{locality: locality, hop: len(n.hops), curve: c, headroom: headroom, first: len(n.branches)}
	at := len(n.columns)
	headroom *= 1 + jointSlack
	knee := c.knee()
	if knee > 0 && knee < headroom*(1-1e-6) {
		n.branches = append(n.branches,
			branch{column: at, curve: *c, headroom: knee},
			branch{column: at, curve: curve{service: c.service + c.kneeSlope/c.capacity}, headroom: headroom - knee})
	} else {
		n.branches = append(n.branches, branch{column: at, curve: *c, headroom: headroom})
	}
	col.last = len(n.branches)
	n.columns = append(n.columns, col)
}

// newNetwork builds the network of members, which stand callers first. A
// locality that nobody's demand reaches is left out.
func newNetwork(members []*member) *network {
	n := &network{}
	for i, m := range members {
		h := hop{service: i, firstRow: len(n.rows), firstCol: len(n.columns), firstArc: len(n.cost)}
		for s := range m.own {
			if d := m.agg.served[s]; d > 0 {
				n.rows = append(n.rows, row{source: s, hop: i, demand: d, from: -1})
			}
		}
		for k, e := range m.calls {
			rate := m.rates[k]
			for l, c := range members[e.member].of {
				if c >= 0 && m.agg.served[m.own+k] > 0 {
					n.columns[c].calls = append(n.columns[c].calls, len(n.rows))
					n.rows = append(n.rows, row{source: e.first + l, hop: i, from: c, rate: rate})
				}
			}
		}
		h.endRow = len(n.rows)
		n.addColumns(m, h.firstRow)
		h.endCol = len(n.columns)
		h.columns = h.endCol - h.firstCol
		for r := h.firstRow; r < h.endRow; r++ {
			for c := h.firstCol; c < h.endCol; c++ {
				s, l := n.rows[r].source, n.columns[c].locality
				n.cost = append(n.cost, m.service.cost(s, l))
				n.open = append(n.open, m.service.open(s, l))
			}
		}
		n.hops = append(n.hops, h)
	}
	return n
}

// addColumns adds those localities of a member that have headroom and a row, from
// firstRow on, that may use them.
func (n *network) addColumns(m *member, firstRow int) {
	m.of = make([]int, m.agg.localities)
	first := len(n.columns)
	sum := 0.0
	for l := range m.of {
		m.of[l] = -1
		reached := false
		for r := firstRow; r < len(n.rows) && !reached; r++ {
			reached = m.service.open(n.rows[r].source, l)
		}
		if reached && m.headrooms[l] > 0 {
			m.of[l] = len(n.columns)
			n.addColumn(l, &m.agg.curves[l], m.headrooms[l])
			sum += m.headrooms[l]
		}
	}
	for c := first; c < len(n.columns); c++ {
		col := &n.columns[c]
		col.share = min(max(col.headroom*float64(len(n.columns)-first)/sum, 1e-3), 1e3)
	}
}

// value is the cost of flows.
func (n *network) value(flow []float64) float64 {
	total := 0.0
	for a, x := range flow {
		if x > 0 {
			total += x * n.cost[a]
		}
	}
	for c, y := range n.loads(flow) {
		total += n.columns[c].curve.value(y)
	}
	return total
}

// loads are the loads of the columns.
func (n *network) loads(flow []float64) []float64 {
	load := make([]float64, len(n.columns))
	for r := range n.rows {
		h := &n.hops[n.rows[r].hop]
		for j, x := range flow[n.arc(r):][:h.columns] {
			load[h.firstCol+j] += x
		}
	}
	return load
}

// trace is the share of a source that is taken for what the method leaves on
// ways that it does not want.
const trace = 1e-7

// sweep leaves out traces.
func sweep(x, demand []float64) []float64 {
	out := make([]float64, len(x))
	n := len(x) / max(1, len(demand))
	for a, v := range x {
		if v > trace*demand[a/n] {
			out[a] = v
		}
	}
	return out
}

// round turns any iterate into flows that keep every constraint, hop by hop:
// what is served by one is the demand of the next.
func (n *network) round(x []float64) []float64 {
	flow := make([]float64, len(x))
	load := make([]float64, len(n.columns))
	for i := range n.hops {
		h := &n.hops[i]
		p := &program{sources: h.endRow - h.firstRow, localities: h.columns}
		for r := h.firstRow; r < h.endRow; r++ {
			p.demand = append(p.demand, n.demandOf(r, load))
		}
		for c := h.firstCol; c < h.endCol; c++ {
			p.headroom = append(p.headroom, n.columns[c].headroom)
		}
		size := p.sources * p.localities
		p.open = n.open[h.firstArc : h.firstArc+size]
		got := p.round(sweep(x[h.firstArc:h.firstArc+size], p.demand))
		copy(flow[h.firstArc:], got)
		for a, v := range got {
			load[h.firstCol+a%h.columns] += v
		}
	}
	return flow
}

// downstream is what one more request in column c costs in the hops below it.
func (n *network) downstream(c int, v []float64) float64 {
	total := 0.0
	for _, r := range n.columns[c].calls {
		total += n.rows[r].rate * v[r]
	}
	return total
}
