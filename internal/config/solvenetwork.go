package config

import (
	"fmt"
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
	"github.com/isobar-xds/isobar/solver"
)

// solveNetwork is the network of a problem file: exact pairs only, nothing is
// assumed.
type solveNetwork struct {
	latency map[pair]float64 // as given, one direction each
	price   map[pair]float64
	asked   map[pair]bool // missing pairs that were told
}

func (n *solveNetwork) read(v strict.Value) {
	v.Object([]strict.Field{
		{Name: "latency_ms", Read: func(v strict.Value) { n.readPairs(v, "ms", latencyRange, n.latency) }},
		{Name: "egress", Read: func(v strict.Value) { n.readPairs(v, "price", priceRange, n.price) }},
	})
}

func (n *solveNetwork) readPairs(v strict.Value, name string, r strict.Range, into map[pair]float64) {
	items, _ := v.List()
	lines := map[pair]int{}
	for _, item := range items {
		var p pair
		var x float64
		if !readPair(item, &p, name, &x, r, lines) {
			into[p] = 0 // told already, and so not missing
			continue
		}
		if p.from == p.to && name == "ms" && x != 0 {
			item.Errorf("remove it", "the latency from %s to itself is 0", p.from)
			continue
		}
		into[p] = x
	}
}

// ms gives the latency of a pair: as given, else that of the way back.
func (n *solveNetwork) ms(p pair) (float64, bool) {
	if p.from == p.to {
		return 0, true
	}
	if ms, ok := n.latency[p]; ok {
		return ms, true
	}
	ms, ok := n.latency[pair{from: p.to, to: p.from}]
	return ms, ok
}

// need gives the latency of a pair and reports, once for both directions, a
// pair that is not given.
func (n *solveNetwork) need(p pair, service string, at strict.Value) float64 {
	ms, ok := n.ms(p)
	if ok || n.asked[p] {
		return ms
	}
	n.asked[p], n.asked[pair{from: p.to, to: p.from}] = true, true
	at.Errorf(fmt.Sprintf("add {from: %s, to: %s, ms: ...} to network.latency_ms", p.from, p.to),
		"the latency from %s to %s is missing, which service %s needs", p.from, p.to, service)
	return 0
}

// problem turns the service into numbers; at is where missing pairs are told.
func (s *solveService) problem(n *solveNetwork, at strict.Value) solver.Service {
	out := solver.Service{Demand: s.demand, Localities: s.sites, MaxShed: s.maxShed}
	for i, from := range s.sources {
		s.addRow(&out, n, from, s.allowed[i], at)
	}
	return out
}

// addRow adds a source that may use some localities (nil = all).
func (s *solveService) addRow(out *solver.Service, n *solveNetwork, from isobar.Locality, allowed map[isobar.Locality]bool, at strict.Value) {
	ms := make([]float64, len(s.localities))
	price := make([]float64, len(s.localities))
	open := make([]bool, len(s.localities))
	for j, to := range s.localities {
		p := pair{from: from, to: to}
		open[j] = allowed == nil || allowed[to]
		price[j] = n.price[p]
		if open[j] {
			ms[j] = n.need(p, s.name, at)
		}
	}
	out.Latency = append(out.Latency, ms)
	out.Price = append(out.Price, price)
	out.Allowed = append(out.Allowed, open)
}

// simplify leaves out what says nothing.
func (s *solveService) simplify(out *solver.Service) {
	if !slices.ContainsFunc(out.Allowed, func(row []bool) bool { return slices.Contains(row, false) }) {
		out.Allowed = nil
	}
	if !slices.ContainsFunc(out.Price, func(row []float64) bool {
		return slices.ContainsFunc(row, func(price float64) bool { return price > 0 })
	}) {
		out.Price = nil
	}
}
