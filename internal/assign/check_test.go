package assign_test

import (
	"math"
	"slices"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
)

// copied is a result of which everything may be changed.
func copied(r *assign.Result) *assign.Result {
	out := *r
	out.Sites = slices.Clone(r.Sites)
	out.Load = slices.Clone(r.Load)
	out.Groups = nil
	fresh := map[*isobar.EndpointGroup]*isobar.EndpointGroup{}
	for l, g := range r.Groups {
		c := &isobar.EndpointGroup{Locality: g.Locality, Endpoints: slices.Clone(g.Endpoints)}
		fresh[g] = c
		out.Groups = append(out.Groups, c)
		out.Sites[l].Group = c
	}
	out.Sources = slices.Clone(r.Sources)
	for i := range out.Sources {
		s := &out.Sources[i]
		s.Shares = slices.Clone(s.Shares)
		a := *s.Assignment
		a.Priorities = nil
		for _, p := range s.Assignment.Priorities {
			p = slices.Clone(p)
			for k := range p {
				p[k].EndpointGroup = fresh[p[k].EndpointGroup]
			}
			a.Priorities = append(a.Priorities, p)
		}
		s.Assignment = &a
	}
	return &out
}

// move shifts units of a source's traffic between sites in every place where
// they are written down.
func move(r *assign.Result, source, from, to int, units uint32) {
	s := &r.Sources[source]
	share := float64(units) / isobar.WeightScale
	s.Shares[from] -= share
	s.Shares[to] += share
	r.Load[from] -= share * s.Demand
	r.Load[to] += share * s.Demand
	p0 := s.Assignment.Priorities[0]
	for k := range p0 {
		switch p0[k].Locality {
		case r.Sites[from].Group.Locality:
			p0[k].Weight -= units
		case r.Sites[to].Group.Locality:
			p0[k].Weight += units
		}
	}
}

// alsoAt gives an endpoint one more address.
func alsoAt(e *isobar.WeightedEndpoint, address string) {
	e.Config = &isobar.Endpoint{Address: e.Address, Details: &isobar.EndpointDetails{AdditionalAddresses: []string{address}}}
}

func TestEachRuleSeesItsViolation(t *testing.T) {
	half := []isobar.HealthStatus{isobar.Healthy, isobar.Unhealthy, isobar.Unhealthy, isobar.Unhealthy}
	in := input([]assign.Site{site(east, 1000, half...), site(eastB, 130.03), site(west, 1000), site(asia, 1000)},
		source(east, 400, []float64{0, 1, 80, 200}, 0.4, 0.2, 0.4, 0),
		source(west, 100, []float64{80, 81, 0, 220}, 0, 0.2, 0.8, 0))
	in.Service.MaxShed = 0.1
	good := decide(t, in)
	tests := []struct {
		rule    string
		first   bool // without a result before
		reapply bool
		corrupt func(r *assign.Result)
	}{
		{rule: invariant.RuleWeights, corrupt: func(r *assign.Result) { r.Groups[0].Endpoints[0].Weight = 0 }},
		{rule: invariant.RuleWeights, corrupt: func(r *assign.Result) { r.Sources[0].Assignment.Priorities[1][0].Weight = 0 }},
		{rule: invariant.RuleWeights, corrupt: func(r *assign.Result) {
			r.Groups[0].Endpoints[0].Weight, r.Groups[0].Endpoints[1].Weight = 1<<31, 1<<31
		}},
		{rule: invariant.RuleWeights, corrupt: func(r *assign.Result) { // each fits 32 bits, their sum does not
			a := r.Sources[1].Assignment
			a.Priorities = [][]isobar.LocalityWeight{a.Priorities[0], slices.Concat(a.Priorities[1:]...)}
			for k := range a.Priorities[1] {
				a.Priorities[1][k].Weight = 1 << 31
			}
		}},
		{rule: invariant.RuleUnique, corrupt: func(r *assign.Result) { alsoAt(&r.Groups[0].Endpoints[1], r.Groups[2].Endpoints[0].Address) }},
		{rule: invariant.RuleUnique, corrupt: func(r *assign.Result) {
			a := r.Sources[0].Assignment
			a.Priorities[1] = append(a.Priorities[1], isobar.LocalityWeight{EndpointGroup: r.Groups[0], Weight: 1})
		}},
		{rule: invariant.RuleUnique, corrupt: func(r *assign.Result) {
			twin := *r.Groups[3]
			twin.Endpoints = slices.Clone(twin.Endpoints)
			alsoAt(&twin.Endpoints[0], r.Groups[0].Endpoints[0].Address)
			r.Sources[0].Assignment.Priorities[1][0].EndpointGroup = &twin
		}},
		{rule: invariant.RuleEndpoints, corrupt: func(r *assign.Result) { r.Groups[0].Endpoints = r.Groups[0].Endpoints[:3] }},
		{rule: invariant.RuleEndpoints, corrupt: func(r *assign.Result) { r.Groups[2].Endpoints[1].Address = "east/a-9" }},
		{rule: invariant.RuleEndpoints, corrupt: func(r *assign.Result) {
			a, other := r.Sources[0].Assignment, site(isobar.MustLocality("asia/b"), 1000).Group
			a.Priorities = append(a.Priorities, []isobar.LocalityWeight{{EndpointGroup: other, Weight: 1}})
		}},
		{rule: invariant.RuleGapless, corrupt: func(r *assign.Result) {
			a := r.Sources[0].Assignment
			a.Priorities = slices.Insert(a.Priorities, 1, []isobar.LocalityWeight{})
		}},
		{rule: invariant.RuleNonEmpty, first: true, corrupt: func(r *assign.Result) {
			s := &r.Sources[0]
			for l, v := range s.Shares {
				r.Load[l] -= v * s.Demand
			}
			clear(s.Shares)
			s.Assignment.Priorities = nil
		}},
		{rule: invariant.RuleNonEmpty, corrupt: func(r *assign.Result) { r.Sources = r.Sources[:1] }},
		{rule: invariant.RuleNonEmpty, corrupt: func(r *assign.Result) { r.Sources[1].Assignment = nil }},
		{rule: invariant.RuleDrop, corrupt: func(r *assign.Result) {
			r.Drop = 0.2
			for i := range r.Sources {
				r.Sources[i].Assignment.Drop = 0.2
			}
			for l := range r.Load {
				r.Load[l] *= 0.8
			}
		}},
		{rule: invariant.RuleDrop, corrupt: func(r *assign.Result) { r.Sources[1].Assignment.Drop = 0.05 }},
		{rule: invariant.RuleUnhealthy, corrupt: func(r *assign.Result) { r.Sites[2].Unreachable = true }},
		{rule: invariant.RuleConservation, corrupt: func(r *assign.Result) { r.Load[0] += 5 }},
		{rule: invariant.RuleConservation, corrupt: func(r *assign.Result) {
			p0 := r.Sources[0].Assignment.Priorities[0]
			p0[0].Weight--
			p0[1].Weight++
		}},
		{rule: invariant.RuleFinite, corrupt: func(r *assign.Result) { r.Sources[1].Shares[2] = math.NaN() }},
		{rule: invariant.RuleFinite, corrupt: func(r *assign.Result) { r.Load[3] = math.NaN() }},
		{rule: invariant.RuleCeiling, corrupt: func(r *assign.Result) { move(r, 0, 0, 1, 900) }},
		{rule: invariant.RuleRounding, corrupt: func(r *assign.Result) { move(r, 0, 0, 1, 101) }}, // 0.016 requests/s too many, a unit is 0.04
		{rule: invariant.RuleEntry, corrupt: func(r *assign.Result) {
			a := r.Sources[0].Assignment
			a.Priorities[0] = append(a.Priorities[0], isobar.LocalityWeight{EndpointGroup: r.Groups[3]})
			a.Priorities = a.Priorities[:1]
			move(r, 0, 0, 3, 60)
		}},
		{rule: invariant.RuleFailover, corrupt: func(r *assign.Result) {
			a := r.Sources[0].Assignment
			a.Priorities = a.Priorities[:1]
		}},
		{rule: invariant.RuleStep, corrupt: func(r *assign.Result) { move(r, 0, 0, 2, 1100) }},
		{rule: invariant.RuleStep, reapply: true, corrupt: func(r *assign.Result) { move(r, 0, 0, 2, 20) }},
		{rule: invariant.RuleRealised, corrupt: func(r *assign.Result) {
			for i := range r.Sources {
				r.Sources[i].Assignment.OverprovisioningFactor = 140
			}
		}},
	}
	for i, tt := range tests {
		bad := copied(good)
		tt.corrupt(bad)
		prev, ci := good, checkInput(in)
		if tt.first {
			prev = nil
		}
		if tt.reapply {
			ci.Trigger = assign.Reapply
		}
		found := invariant.Check(prev, bad, ci)
		if len(found) == 0 {
			t.Errorf("case %d, %s: nothing found", i, tt.rule)
		}
		for _, v := range found {
			if v.Rule != tt.rule || v.Service != "svc" || v.Text == "" {
				t.Errorf("case %d, %s: found %s from %q: %s", i, tt.rule, v.Rule, v.Source, v.Text)
			}
		}
	}
	if found := invariant.Check(good, copied(good), checkInput(in)); len(found) > 0 {
		t.Errorf("a copy of the good result: %v", found)
	}
	if found := invariant.Check(good, nil, checkInput(in)); len(found) != 1 {
		t.Errorf("no result: %v", found)
	}
}

func TestCheckSeesATargetThatLosesDemand(t *testing.T) {
	in := input(twoSites(), source(east, 400, []float64{0, 80}, 0.5, 0.4))
	found := invariant.Check(nil, assign.Assign(in), checkInput(in))
	if len(found) != 1 || found[0].Rule != invariant.RuleConservation {
		t.Errorf("found %v", found)
	}
}

func TestCheckSeesDrainsOfMoreThanHalf(t *testing.T) {
	for _, row := range []struct {
		unreachable, drained []int
		want                 int
	}{
		{[]int{0, 1}, nil, 1},
		{nil, []int{0, 1}, 1},
		{[]int{0}, []int{1}, 1},
		{[]int{0}, []int{0}, 0},
	} {
		in := input([]assign.Site{site(east, 1000), site(eastB, 1000), site(west, 1000)}, source(east, 400, []float64{0, 1, 80}, 0, 0, 1))
		for _, l := range row.unreachable {
			in.Sites[l].Unreachable, in.Sites[l].Capacity = true, 0
		}
		for _, l := range row.drained {
			in.Sites[l].Drained, in.Sites[l].Capacity = true, 0
		}
		found := invariant.Check(nil, assign.Assign(in), checkInput(in))
		if len(found) != row.want || (row.want > 0 && found[0].Rule != invariant.RuleDrain) {
			t.Errorf("unreachable %v, drained %v: found %v", row.unreachable, row.drained, found)
		}
	}
}

// Nothing was decided about localities that are idle and have no declared
// capacity, or whose endpoints that are up were declared to have none.
func TestLocalitiesWithoutCapacityAreNotDrained(t *testing.T) {
	in := input([]assign.Site{site(east, 1000), site(eastB, 1000), site(west, 1000)}, source(east, 400, []float64{0, 1, 80}, 0, 0, 1))
	in.Sites[0].Capacity, in.Sites[1].Capacity = 0, 0
	if found := invariant.Check(nil, assign.Assign(in), checkInput(in)); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}
