package solver

import "math"

// jointSlack is how much wider ceilings are for the method than for its answer,
// so that it has headroom to move in where demand fills them.
const jointSlack = 1e-7

// member is one service of a group that calls connect.
type member struct {
	index   int // into the problem's services
	service *Service
	own     int // sources of its own; the callers' localities follow

	// agg is the service with one source for each of its callers. Calls may go
	// anywhere, so what fits does not depend on where callers are.
	agg       *instance
	calls     []caller
	rates     []float64 // per caller: requests served per request of it
	lost      []float64 // per caller: requests shed or unreachable per request of it
	headrooms []float64 // per locality, under the raised ceilings; 0 where unmanaged load leaves a sliver at most
	of        []int     // column of each locality in the network; < 0 where nothing can flow
}

// caller is a service of the group that calls a member.
type caller struct {
	member     int // index into the group
	call       int // index into its Calls
	first      int // of its localities among the sources
	perRequest float64
}

// solveGroup solves services that calls connect, in the order callers first,
// as one convex problem, and certifies the sum. It writes their solutions and
// returns the sum and the demand from outside that is served.
func (p Problem) solveGroup(g *callGraph, group []int, out []ServiceSolution) (total Solution, served float64) {
	members := p.members(g, group)
	n := newNetwork(members)
	method := newJoint(n)
	if len(n.columns) > 0 {
		method.solve()
	}
	for _, m := range members {
		for _, d := range m.agg.served[:m.own] {
			served += d
		}
	}
	flow := n.towardsPrevious(members, n.round(method.bestX), method.bestX, served)
	for i, m := range members {
		solved := &out[m.index]
		*solved = m.unfold(n, &n.hops[i], flow, members, out)
		solved.Iterations = method.iterations
		total.Objective += solved.Objective
		for k, c := range m.calls {
			out[members[c.member].index].CallsServed[c.call] = m.rates[k] / c.perRequest
		}
	}
	total.LowerBound = lower(total.Objective, p.certifyGroup(g, group, members, method.bestP, out))
	return total, served
}

// members decides for each service what is shed and how far ceilings are
// raised, callers first: calls that are shed or have nowhere to go cause nothing
// further down.
func (p Problem) members(g *callGraph, group []int) []*member {
	at := map[int]int{}
	members := make([]*member, 0, len(group))
	load := make([]float64, 0, len(group)) // demand served
	for _, i := range group {
		s := &p.Services[i]
		m := &member{index: i, service: s, own: len(s.Demand)}
		agg := *s
		agg.Calls, agg.Price, agg.Previous, agg.WarmPrices, agg.Last = nil, nil, nil, nil, nil
		agg.Demand = append([]float64(nil), s.Demand...)
		agg.Latency = append([][]float64(nil), s.Latency[:m.own]...)
		if s.Allowed != nil {
			agg.Allowed = append([][]bool(nil), s.Allowed[:m.own]...)
		}
		nowhere, everywhere := make([]float64, len(s.Localities)), make([]bool, len(s.Localities))
		for l := range everywhere {
			everywhere[l] = true
		}
		for _, e := range g.in[i] {
			c := caller{member: at[e.from], call: e.call, first: e.first, perRequest: p.Services[e.from].Calls[e.call].PerRequest}
			m.calls = append(m.calls, c)
			agg.Demand = append(agg.Demand, c.perRequest*load[c.member])
			agg.Latency = append(agg.Latency, nowhere)
			if agg.Allowed != nil {
				agg.Allowed = append(agg.Allowed, everywhere)
			}
		}
		m.agg = newInstance(&agg)
		m.fit()
		sum := 0.0
		for _, d := range m.agg.served {
			sum += d
		}
		at[i] = len(members)
		members, load = append(members, m), append(load, sum)
	}
	return members
}

// fit sheds and raises ceilings, and finds what is left of the calls.
func (m *member) fit() {
	in := m.agg
	in.shedOverflow()
	m.headrooms = make([]float64, in.localities)
	for l := range m.headrooms {
		c := &in.curves[l]
		if headroom := c.headroom(1); headroom > 2*raiseSlack*c.ceiling*c.capacity {
			m.headrooms[l] = headroom
		}
	}
	for _, p := range in.partition(in.served, in.ceilings()) {
		if !p.saturated || p.factor <= 1+fullSlack {
			continue
		}
		m.raise(p)
	}
	for k, c := range m.calls {
		rate, lost := c.perRequest, 0.0
		if demand := in.service.Demand[m.own+k]; demand >= minDemand {
			rate *= in.served[m.own+k] / demand
			lost = c.perRequest * ((in.shed[m.own+k] + in.unreachable[m.own+k]) / demand)
		} else if len(in.reach([]int{m.own + k}, indices(in.localities))) == 0 {
			rate, lost = 0, c.perRequest
		}
		m.lost = append(m.lost, lost)
		m.rates = append(m.rates, rate)
	}
}

// raise sets the headrooms of a part that demand fills so that they hold it, though
// little headroom beside much unmanaged load is only known to the rounding of both.
func (m *member) raise(p component) {
	in := m.agg
	ramps, headrooms := in.ceilings(), in.headrooms(p)
	demand, sum, weight := sumOf(in.served, p.sources), sumOf(headrooms, p.localities), 0.0
	for _, l := range p.localities {
		weight += ramps[l].slope
	}
	drowned := math.Abs(sum-demand) > 0.01*demand
	for _, l := range p.localities {
		in.scale[l] = p.factor * (1 + raiseSlack)
		if drowned {
			m.headrooms[l] = headrooms[l] * demand / sum
		} else {
			m.headrooms[l] = headrooms[l] + (demand*(1+raiseSlack)-sum)*ramps[l].slope/weight
		}
		if m.headrooms[l] < unmetSlack*demand {
			m.headrooms[l] = 0
		}
	}
}

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// unfold writes the flows of a hop as the solution of its service. Those of its
// callers stand in out already.
func (m *member) unfold(n *network, h *hop, flow []float64, members []*member, out []ServiceSolution) ServiceSolution {
	in := m.agg
	sources := len(m.service.Latency)
	sol := ServiceSolution{
		Joint: true, Flows: make([][]float64, sources), Scale: in.scale,
		Shed: make([]float64, sources), Unreachable: make([]float64, sources),
		Prices: make([]float64, in.localities), CallsServed: make([]float64, len(m.service.Calls)),
	}
	for s := range sol.Flows {
		sol.Flows[s] = make([]float64, in.localities)
	}
	for r := h.firstRow; r < h.endRow; r++ {
		for k, x := range flow[n.arc(r):][:h.columns] {
			sol.Flows[n.rows[r].source][n.columns[h.firstCol+k].locality] = x
		}
	}
	copy(sol.Shed, in.shed[:m.own])
	copy(sol.Unreachable, in.unreachable[:m.own])
	for k, c := range m.calls {
		lost := sol.Unreachable
		if in.shed[m.own+k] > 0 {
			lost = sol.Shed
		}
		for l, y := range out[members[c.member].index].Load {
			lost[c.first+l] = m.lost[k] * y
		}
	}
	sol.total(in)
	sol.Objective = Objective(*m.service, sol.Flows)
	return sol
}
