package policy_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/policy"
	"github.com/isobar-xds/isobar/solver"
)

// world is us/a, us/b, eu/a with 1000 requests/s each at utilization 1, which is
// 800 beneath the ceiling, and sources in the same places.
func world(demand ...float64) policy.Problem {
	p := policy.Problem{}
	p.Demand = demand
	for _, l := range []string{"us/a", "us/b", "eu/a"} {
		p.Places = append(p.Places, isobar.MustLocality(l))
		p.Localities = append(p.Localities, solver.Locality{Capacity: 1000})
	}
	p.Sources = p.Places
	p.Latency = [][]float64{{0, 1, 80}, {1, 0, 80}, {80, 80, 0}}
	return p
}

func TestPolicies(t *testing.T) {
	lost := world(400, 0, 100)
	lost.Localities[0].Capacity = 0
	fixed := world(100, 0, 200)
	fixed.Weights = []float64{3, 1, 0}
	last := world(100, 0, 200)
	last.Weights, last.Localities[0].Capacity, last.Localities[1].Capacity = fixed.Weights, 0, 0
	nowhere := world(800, 0, 300)
	nowhere.Sources = slices.Clone(nowhere.Sources)
	nowhere.Sources[2], nowhere.Latency[2] = isobar.Locality{}, []float64{0, 0, 0}
	ill := world(100, 0, 200)
	ill.Keep = []float64{0.5, 1, 0.25}
	illFixed := ill
	illFixed.Weights = []float64{2, 1, 4}
	sick := world(300, 0, 0)
	sick.Localities[0].Capacity, sick.Keep = 500, []float64{0.5, 1, 1}
	allSick := world(100, 0, 0)
	allSick.Keep = []float64{0.5, 0.5, 0.5}
	preferred := world(1000, 0, 0)
	preferred.Preferred = []bool{false, false, true}
	tests := []struct {
		name   string
		policy policy.Func
		p      policy.Problem
		want   policy.Flows
	}{
		{"nearest ignores fullness", policy.Nearest, world(2000, 100, 0), policy.Flows{{2000, 0, 0}, {0, 100, 0}, {0, 0, 0}}},
		{"nearest fails over", policy.Nearest, lost, policy.Flows{{0, 400, 0}, {0, 0, 0}, {0, 0, 100}}},
		{"fixed", policy.Fixed, fixed, policy.Flows{{75, 25, 0}, {0, 0, 0}, {150, 50, 0}}},
		{"fixed without those that have a weight", policy.Fixed, last, policy.Flows{{0, 0, 100}, {0, 0, 0}, {0, 0, 200}}},
		{"by region: who has no locality has no region", policy.WaterfallByRegion, nowhere, policy.Flows{{500, 300, 0}, {0, 0, 0}, {0, 200, 100}}},
		{"nearest spills what health takes", policy.Nearest, ill, policy.Flows{{50, 50, 0}, {0, 0, 0}, {200 * 3. / 13, 200 * 6. / 13, 200 * 4. / 13}}},
		{"fixed spills in proportion", policy.Fixed, illFixed, policy.Flows{{100. / 3, 100. / 3, 100. / 3}, {0, 0, 0}, {200. / 3, 200. / 3, 200. / 3}}},
		{"by zone: a sick zone keeps a part", policy.WaterfallByZone, sick, policy.Flows{{150, 150, 0}, {0, 0, 0}, {0, 0, 0}}},
		{"by region: it keeps a part of its part, the region the rest", policy.WaterfallByRegion, sick, policy.Flows{{50, 250, 0}, {0, 0, 0}, {0, 0, 0}}},
		{"spray to region: the same", policy.SprayToRegion, sick, policy.Flows{{50, 250, 0}, {0, 0, 0}, {0, 0, 0}}},
		{"by zone: all are sick", policy.WaterfallByZone, allSick, policy.Flows{{62.5, 25, 12.5}, {0, 0, 0}, {0, 0, 0}}},
		{"spray to world goes by capacity alone", policy.SprayToWorld, sick, policy.Flows{{60, 120, 120}, {0, 0, 0}, {0, 0, 0}}},
		{"preferred: nearest", policy.Nearest, preferred, policy.Flows{{0, 0, 1000}, {0, 0, 0}, {0, 0, 0}}},
		{"preferred: by zone", policy.WaterfallByZone, preferred, policy.Flows{{200, 0, 800}, {0, 0, 0}, {0, 0, 0}}},
		{"preferred: by region", policy.WaterfallByRegion, preferred, policy.Flows{{100, 100, 800}, {0, 0, 0}, {0, 0, 0}}},
		{"preferred: spray to world", policy.SprayToWorld, preferred, policy.Flows{{100, 100, 800}, {0, 0, 0}, {0, 0, 0}}},
		{"spray to world", policy.SprayToWorld, world(300, 0, 600), policy.Flows{{100, 100, 100}, {0, 0, 0}, {200, 200, 200}}},
		{"spray to region", policy.SprayToRegion, world(400, 200, 100), policy.Flows{{200, 200, 0}, {100, 100, 0}, {0, 0, 100}}},
		{"by region fills evenly, near first", policy.WaterfallByRegion, world(400, 200, 100), policy.Flows{{300, 100, 0}, {0, 200, 0}, {0, 0, 100}}},
		{"by region overflows", policy.WaterfallByRegion, world(2000, 0, 100), policy.Flows{{800, 800, 400}, {0, 0, 0}, {0, 0, 100}}},
		{"by zone fills the nearest first", policy.WaterfallByZone, world(900, 200, 0), policy.Flows{{800, 100, 0}, {0, 200, 0}, {0, 0, 0}}},
		{"by zone: those who are near come first", policy.WaterfallByZone, world(1000, 700, 0), policy.Flows{{800, 100, 100}, {0, 700, 0}, {0, 0, 0}}},
		{"all full: equal overflow", policy.WaterfallByRegion, world(3000, 0, 0), policy.Flows{{1000, 1000, 1000}, {0, 0, 0}, {0, 0, 0}}},
		{"by zone, all full: equal overflow", policy.WaterfallByZone, world(0, 0, 3000), policy.Flows{{0, 0, 0}, {0, 0, 0}, {1000, 1000, 1000}}},
		{
			"rings", func(p policy.Problem) (policy.Flows, error) {
				return policy.Rings(p, []policy.Ring{{MS: 0, Full: 0.5}, {MS: 10, Full: 0.6}, {MS: 1000, Full: 0.8}})
			}, world(1320, 0, 0), policy.Flows{{620, 620, 80}, {0, 0, 0}, {0, 0, 0}},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.policy(test.p)
			if err != nil {
				t.Fatal(err)
			}
			for s := range test.want {
				for l, want := range test.want[s] {
					if math.Abs(got[s][l]-want) > 1e-6 {
						t.Fatalf("flows %.2f, want %.2f", got, test.want)
					}
				}
			}
		})
	}
}

func TestShape(t *testing.T) {
	for _, broken := range []func(*policy.Problem){
		func(p *policy.Problem) { p.Sources = p.Sources[1:] },
		func(p *policy.Problem) { p.Places = p.Places[1:] },
		func(p *policy.Problem) { p.Latency[1] = nil },
		func(p *policy.Problem) { p.Weights = []float64{1} },
		func(p *policy.Problem) { p.Keep = []float64{1} },
		func(p *policy.Problem) { p.Preferred = []bool{true} },
		func(p *policy.Problem) { p.Allowed = [][]bool{{true, true, true}} },
		func(p *policy.Problem) { p.Allowed = [][]bool{{true}, {true}, {true}} },
	} {
		p := world(1, 1, 1)
		broken(&p)
		for _, f := range all {
			if _, err := f(p); !errors.Is(err, isobar.ErrInvalid) {
				t.Errorf("error %v", err)
			}
		}
	}
}

var all = []policy.Func{
	policy.Nearest, policy.SprayToWorld, policy.Fixed, policy.SprayToRegion, policy.WaterfallByRegion, policy.WaterfallByZone,
	func(p policy.Problem) (policy.Flows, error) {
		return policy.Rings(p, []policy.Ring{{MS: 5, Full: 0.55}, {MS: 35, Full: 0.65}, {MS: 1e6, Full: 0.8}})
	},
}

// TestProperties: all demand that may go anywhere goes, nowhere else than where
// it may; what has to fit does.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := random(t)
		for i, f := range all {
			flows, err := f(p)
			if err != nil {
				t.Fatal(err)
			}
			load := make([]float64, len(p.Places))
			total, headroom := 0.0, 0.0
			for s, row := range flows {
				sum, open := 0.0, false
				for l, x := range row {
					ok := p.Localities[l].Capacity > 0 && (p.Allowed == nil || p.Allowed[s][l])
					open = open || ok
					if math.IsNaN(x) || x < 0 || (x > 0 && !ok) {
						t.Fatalf("policy %d: flow %v from %d to %d", i, x, s, l)
					}
					sum += x
					load[l] += x
				}
				if want := p.Demand[s]; open && math.Abs(sum-want) > 1e-6*(1+want) {
					t.Fatalf("policy %d: %v of %v placed", i, sum, want)
				}
				total += sum
			}
			for _, l := range p.Localities {
				headroom += 0.8 * l.Capacity
			}
			if i >= 3 && p.Allowed == nil && total < headroom {
				for l, y := range load {
					if y > 0.8*p.Localities[l].Capacity*(1+1e-6)+1e-6 {
						t.Fatalf("policy %d: %v lands on a capacity of %v although all fits", i, y, p.Localities[l].Capacity)
					}
				}
			}
		}
	})
}

// TestNearestKeepsAll: places of one distance, whose parts of what is left
// may add up to more than that by rounding, leave nothing to take back from the next one.
func TestNearestKeepsAll(t *testing.T) {
	some := []float64{1, 3, 7, 100}
	for i := range len(some) * len(some) * len(some) {
		p := policy.Problem{Sources: []isobar.Locality{{Region: "a"}}, Keep: []float64{0.4, 1, 1, 1, 0.4}}
		p.Demand, p.Latency = []float64{1}, [][]float64{{0, 20, 20, 20, 40}}
		for l, c := range []float64{1, some[i%4], some[i/4%4], some[i/16], 1} {
			p.Places = append(p.Places, isobar.Locality{Region: "a", Zone: string(rune('a' + l))})
			p.Localities = append(p.Localities, solver.Locality{Capacity: c})
		}
		flows, err := policy.Nearest(p)
		if err != nil {
			t.Fatal(err)
		}
		if x := slices.Min(flows[0]); x < 0 {
			t.Errorf("capacities %v: a flow of %v", p.Localities, x)
		}
	}
}

func random(t *rapid.T) policy.Problem {
	sources, places := rapid.IntRange(1, 5).Draw(t, "sources"), rapid.IntRange(1, 6).Draw(t, "places")
	p := policy.Problem{}
	regions := rapid.SampledFrom([]string{"a", "b", "c"})
	for l := range places {
		p.Places = append(p.Places, isobar.Locality{Region: regions.Draw(t, "region"), Zone: string(rune('a' + l))})
		p.Localities = append(p.Localities, solver.Locality{Capacity: rapid.SampledFrom([]float64{0, 1, 100, 1000}).Draw(t, "capacity")})
	}
	forbid := rapid.Bool().Draw(t, "forbid")
	if rapid.Bool().Draw(t, "sick") {
		for range places {
			p.Keep = append(p.Keep, rapid.SampledFrom([]float64{0.01, 0.4, 1}).Draw(t, "keep"))
		}
	}
	for range sources {
		p.Sources = append(p.Sources, isobar.Locality{Region: regions.Draw(t, "from")})
		p.Demand = append(p.Demand, rapid.SampledFrom([]float64{0, 1, 300, 2000}).Draw(t, "demand"))
		row, allowed := make([]float64, places), make([]bool, places)
		for l := range row {
			row[l] = float64(rapid.IntRange(0, 4).Draw(t, "ms") * 20)
			allowed[l] = rapid.Bool().Draw(t, "allowed")
		}
		p.Latency = append(p.Latency, row)
		if forbid {
			p.Allowed = append(p.Allowed, allowed)
		}
	}
	return p
}
