package dataplane_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
)

func one(ls ...dataplane.Locality) dataplane.Cluster {
	return dataplane.Cluster{Priorities: []dataplane.Priority{{Localities: ls}}}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9 {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestGRPCUsesTheFirstPriorityWithAUsableEndpoint(t *testing.T) {
	c := dataplane.Cluster{Priorities: []dataplane.Priority{
		{Localities: []dataplane.Locality{{Locality: zone("a"), Weight: 5, Endpoints: hosts("a", 3, 0, 3)}}},
		{Localities: []dataplane.Locality{
			{Locality: zone("b"), Weight: 1, Endpoints: hosts("b", 4, 1, 0)},
			{Locality: zone("c"), Weight: 3, Endpoints: hosts("c", 2, 2, 0)},
			{Locality: zone("d"), Weight: 9, Endpoints: hosts("d", 2, 0, 2)},
		}},
	}}
	got := dataplane.Predict(c, dataplane.GRPC, dataplane.DefaultOptions())
	if got.Priorities[0].Load != 0 || got.Priorities[1].Load != 100 {
		t.Fatalf("loads %d, %d: degraded endpoints must not keep a gRPC priority", got.Priorities[0].Load, got.Priorities[1].Load)
	}
	ls := got.Priorities[1].Localities
	near(t, "b, not shrunk by its dead hosts", ls[0].Share, 0.25)
	near(t, "c", ls[1].Share, 0.75)
	near(t, "d has no usable host", ls[2].Share, 0)
	near(t, "the one good host of b", ls[0].Endpoints[0].Share, 0.25)
}

func TestGRPCSkipsLocalitiesWithoutWeight(t *testing.T) {
	c := one(dataplane.Locality{Locality: zone("a"), Endpoints: hosts("a", 2, 2, 0)})
	c.Priorities = append(c.Priorities, one(dataplane.Locality{Locality: zone("b"), Weight: 1, Endpoints: hosts("b", 1, 1, 0)}).Priorities...)
	got := dataplane.Predict(c, dataplane.GRPC, dataplane.DefaultOptions())
	if got.Priorities[0].Load != 0 || got.Priorities[1].Load != 100 {
		t.Errorf("loads %d, %d, want 0, 100", got.Priorities[0].Load, got.Priorities[1].Load)
	}
	envoy := dataplane.Predict(one(
		dataplane.Locality{Locality: zone("a"), Endpoints: hosts("a", 2, 2, 0)},
		dataplane.Locality{Locality: zone("b"), Weight: 1, Endpoints: hosts("b", 2, 2, 0)},
	), dataplane.Envoy, dataplane.DefaultOptions())
	near(t, "envoy never picks the unset one", envoy.Priorities[0].Localities[0].Share, 0)
}

func TestEndpointWeights(t *testing.T) {
	c := one(dataplane.Locality{Locality: zone("a"), Weight: 1, Endpoints: []dataplane.Endpoint{
		{Address: "1", Weight: 1}, {Address: "2", Weight: 3}, {Address: "3", Weight: 6, Health: isobar.Draining},
	}})
	o := dataplane.DefaultOptions()
	es := dataplane.Predict(c, dataplane.Envoy, o).Priorities[0].Localities[0].Endpoints
	near(t, "envoy", es[1].Share, 0.75)
	near(t, "a draining host", es[2].Share, 0)
	near(t, "gRPC round_robin", dataplane.Predict(c, dataplane.GRPC, o).Priorities[0].Localities[0].Endpoints[1].Share, 0.5)
	o.EndpointWeights = true
	near(t, "gRPC ring_hash", dataplane.Predict(c, dataplane.GRPC, o).Priorities[0].Localities[0].Endpoints[1].Share, 0.75)
}

func TestPanicBypassesLocalityWeights(t *testing.T) {
	c := one(
		dataplane.Locality{Locality: zone("a"), Weight: 9, Endpoints: hosts("a", 1, 0, 0)},
		dataplane.Locality{Locality: zone("b"), Weight: 1, Endpoints: hosts("b", 3, 1, 0)},
	)
	got := dataplane.Predict(c, dataplane.Envoy, dataplane.DefaultOptions()).Priorities[0]
	if !got.Panic || got.Load != 100 {
		t.Fatalf("panic %v, load %d", got.Panic, got.Load)
	}
	near(t, "by hosts, the dead ones too", got.Localities[0].Share, 0.25)

	off := dataplane.DefaultOptions()
	off.PanicThreshold = 0
	got = dataplane.Predict(c, dataplane.Envoy, off).Priorities[0]
	if got.Panic {
		t.Error("panic with threshold 0")
	}
	near(t, "only b has a healthy host", got.Localities[1].Share, 1)

	dead := dataplane.Predict(one(dataplane.Locality{Locality: zone("a"), Weight: 1, Endpoints: hosts("a", 2, 0, 0)}), dataplane.Envoy, off).Priorities[0]
	if dead.Load != 100 || dead.Panic || dead.Localities[0].Share != 0 {
		t.Errorf("nothing healthy and panic off: %+v, want load 100 that goes nowhere", dead)
	}
}

func TestTotalPanicSpreadsByHosts(t *testing.T) {
	got := dataplane.EnvoyLoads([]dataplane.Hosts{{Total: 1}, {Total: 2}, {Total: 4, Healthy: 1}}, 140, 50)
	want := []int{15, 28, 57} // 14 + what integer division leaves
	for p := range got {
		if !got[p].Panic || got[p].Healthy != want[p] {
			t.Errorf("priority %d: %+v, want %d in panic", p, got[p], want[p])
		}
	}
	if none := dataplane.EnvoyLoads([]dataplane.Hosts{{}, {}}, 140, 50); none[0].Healthy != 100 {
		t.Errorf("no host at all: %+v, want all on the first priority", none)
	}
}

func TestExcludedHostsLeaveDenominators(t *testing.T) {
	c := one(dataplane.Locality{Locality: zone("a"), Weight: 1, Endpoints: hosts("a", 4, 2, 0)})
	c.Priorities = append(c.Priorities, one(dataplane.Locality{Locality: zone("b"), Weight: 1, Endpoints: hosts("b", 4, 4, 0)}).Priorities...)
	o := dataplane.DefaultOptions()
	if l := dataplane.Predict(c, dataplane.Envoy, o).Priorities[0].Load; l != 70 {
		t.Errorf("2 of 4 healthy: load %d, want 70", l)
	}
	o.Excluded = []string{"a-2", "a-3"}
	if l := dataplane.Predict(c, dataplane.Envoy, o).Priorities[0].Load; l != 100 {
		t.Errorf("2 of 2 counted healthy: load %d, want 100", l)
	}
	if c.Priorities[0].Localities[0].Endpoints[2].Excluded {
		t.Error("the input was changed")
	}
}

// Measured: P0 {healthy, draining x3}, P1 {healthy} sends everything to P0.
func TestDrainingHostsLeaveDenominators(t *testing.T) {
	draining := hosts("a", 4, 1, 0)
	for i := range draining[1:] {
		draining[1+i].Health, draining[1+i].Weight = isobar.Draining, 9
	}
	for _, weighted := range []bool{false, true} {
		c := one(dataplane.Locality{Locality: zone("a"), Weight: 1, Endpoints: draining}, dataplane.Locality{Locality: zone("c"), Weight: 1, Endpoints: hosts("c", 1, 1, 0)})
		c.Priorities = append(c.Priorities, one(dataplane.Locality{Locality: zone("b"), Weight: 1, Endpoints: hosts("b", 1, 1, 0)}).Priorities...)
		c.OverprovisioningFactor, c.WeightedPriorityHealth = 100, weighted
		got := dataplane.Predict(c, dataplane.Envoy, dataplane.DefaultOptions()).Priorities[0]
		if got.Load != 100 || got.Panic {
			t.Errorf("%+v, want all load and no panic", got)
		}
		near(t, "a locality that drains", got.Localities[0].Share, 0.5)
		near(t, "its healthy host", got.Localities[0].Endpoints[0].Share, 0.5)
	}
	for i := range draining {
		draining[i].Health, draining[i].Weight = isobar.Draining, 1
	}
	got := dataplane.Predict(one(dataplane.Locality{Locality: zone("a"), Weight: 1, Endpoints: draining}), dataplane.Envoy, dataplane.DefaultOptions()).Priorities[0]
	if !got.Panic {
		t.Error("all hosts drain, and there is no panic")
	}
	near(t, "a host that drains, in panic", got.Localities[0].Endpoints[0].Share, 0.25)
}

func TestWeightedPriorityHealth(t *testing.T) {
	es := hosts("a", 2, 1, 0)
	es[1].Weight = 9
	c := one(dataplane.Locality{Locality: zone("a"), Weight: 1, Endpoints: es})
	c.Priorities = append(c.Priorities, one(dataplane.Locality{Locality: zone("b"), Weight: 1, Endpoints: hosts("b", 1, 1, 0)}).Priorities...)
	c.WeightedPriorityHealth = true
	if l := dataplane.Predict(c, dataplane.Envoy, dataplane.DefaultOptions()).Priorities[0].Load; l != 14 {
		t.Errorf("1 of 10 by weight: load %d, want 14", l)
	}
}

func TestOverprovisioningFactor(t *testing.T) {
	c := one(dataplane.Locality{Locality: zone("a"), Weight: 1, Endpoints: hosts("a", 4, 1, 0)})
	c.Priorities = append(c.Priorities, one(dataplane.Locality{Locality: zone("b"), Weight: 1, Endpoints: hosts("b", 1, 1, 0)}).Priorities...)
	c.OverprovisioningFactor = 400
	o := dataplane.DefaultOptions()
	if l := dataplane.Predict(c, dataplane.Envoy, o).Priorities[0].Load; l != 100 {
		t.Errorf("factor 400: load %d, want 100", l)
	}
	o.OverprovisioningFactor = 100
	if l := dataplane.Predict(c, dataplane.Envoy, o).Priorities[0].Load; l != 25 {
		t.Errorf("overridden to 100: load %d, want 25", l)
	}
}

func TestPredictAssignment(t *testing.T) {
	g := &isobar.EndpointGroup{Locality: zone("a"), Endpoints: []isobar.WeightedEndpoint{{Address: "10.0.0.1:80", Weight: 1, Health: isobar.Healthy}}}
	a := &isobar.Assignment{
		Priorities: [][]isobar.LocalityWeight{{{EndpointGroup: g, Weight: isobar.WeightScale}}},
		Drop:       0.25, OverprovisioningFactor: 140,
	}
	b, err := json.Marshal(dataplane.PredictAssignment(a, dataplane.Envoy, dataplane.DefaultOptions()))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"priorities":[{"load":100,"degraded_load":0,"panic":false,"localities":[{"locality":"r/a","share":1,"endpoints":[{"address":"10.0.0.1:80","share":1}]}]}],"pass_percent":75}`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
	if got := dataplane.PredictAssignment(nil, dataplane.GRPC, dataplane.DefaultOptions()); len(got.Priorities) != 0 || got.PassPercent != 100 {
		t.Errorf("no assignment: %+v", got)
	}
}

func drawCluster(t *rapid.T) dataplane.Cluster {
	c := dataplane.Cluster{
		OverprovisioningFactor: rapid.SampledFrom([]uint32{0, 100, 140, 333}).Draw(t, "factor"),
		WeightedPriorityHealth: rapid.Bool().Draw(t, "weighted"),
	}
	states := []isobar.HealthStatus{isobar.Healthy, isobar.Unknown, isobar.Unhealthy, isobar.Degraded, isobar.Draining, isobar.Timeout}
	for range rapid.IntRange(1, 4).Draw(t, "priorities") {
		var p dataplane.Priority
		for range rapid.IntRange(0, 4).Draw(t, "localities") {
			l := dataplane.Locality{Weight: rapid.Uint32Range(0, 5).Draw(t, "weight")}
			for range rapid.IntRange(0, 5).Draw(t, "endpoints") {
				l.Endpoints = append(l.Endpoints, dataplane.Endpoint{
					Weight: rapid.Uint32Range(0, 4).Draw(t, "w"), Health: rapid.SampledFrom(states).Draw(t, "health"),
					Excluded: rapid.IntRange(0, 9).Draw(t, "excluded") == 0, Repeated: rapid.IntRange(0, 9).Draw(t, "repeated") == 0,
				})
			}
			p.Localities = append(p.Localities, l)
		}
		c.Priorities = append(c.Priorities, p)
	}
	return c
}

func TestSharesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		o := dataplane.DefaultOptions()
		o.PanicThreshold = rapid.SampledFrom([]float64{0, 33.4, 50, 100}).Draw(t, "panic")
		for _, kind := range []dataplane.Kind{dataplane.Envoy, dataplane.GRPC} {
			got := dataplane.Predict(c, kind, o)
			load, locality, endpoint := 0, 0.0, 0.0
			for _, p := range got.Priorities {
				load += p.Load + p.DegradedLoad
				for _, l := range p.Localities {
					locality += l.Share
					for _, e := range l.Endpoints {
						endpoint += e.Share
					}
				}
			}
			if kind == dataplane.Envoy && load != 100 {
				t.Fatalf("envoy: priority loads sum to %d", load)
			}
			if math.Abs(locality-endpoint) > 1e-9 {
				t.Fatalf("%s: localities sum to %v, endpoints to %v", kind, locality, endpoint)
			}
			if locality > 1e-9 && math.Abs(locality-1) > 1e-9 {
				t.Fatalf("%s: shares sum to %v", kind, locality)
			}
		}
	})
}

func TestOrderOfLocalitiesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		mirrored := dataplane.Cluster{OverprovisioningFactor: c.OverprovisioningFactor, WeightedPriorityHealth: c.WeightedPriorityHealth}
		for _, p := range c.Priorities {
			ls := slices.Clone(p.Localities)
			slices.Reverse(ls)
			mirrored.Priorities = append(mirrored.Priorities, dataplane.Priority{Localities: ls})
		}
		for _, kind := range []dataplane.Kind{dataplane.Envoy, dataplane.GRPC} {
			a := dataplane.Predict(c, kind, dataplane.DefaultOptions())
			b := dataplane.Predict(mirrored, kind, dataplane.DefaultOptions())
			for p := range a.Priorities {
				n := len(a.Priorities[p].Localities)
				for i, l := range a.Priorities[p].Localities {
					if o := b.Priorities[p].Localities[n-1-i]; math.Abs(l.Share-o.Share) > 1e-12 {
						t.Fatalf("%s: priority %d, locality %d: %v and mirrored %v", kind, p, i, l.Share, o.Share)
					}
				}
			}
		}
	})
}

// Random ignores the weights of endpoints; hashes spread over the healthy hosts of
// localities whose weights stay, and over nothing where no locality has one.
func TestLBPolicies(t *testing.T) {
	a, b := hosts("a", 4, 1, 2), hosts("b", 2, 2, 0)
	b[1].Weight = 3
	c := one(dataplane.Locality{Locality: zone("a"), Weight: 1, Endpoints: a}, dataplane.Locality{Locality: zone("b"), Weight: 1, Endpoints: b})
	predict := func(p dataplane.LBPolicy) []dataplane.LocalityPrediction {
		o := dataplane.DefaultOptions()
		o.LBPolicy = p
		return dataplane.Predict(c, dataplane.Envoy, o).Priorities[0].Localities
	}
	near(t, "round_robin, the heavy endpoint of its locality", predict(dataplane.RoundRobin)[1].Endpoints[1].Share/predict(dataplane.RoundRobin)[1].Share, 0.75)
	near(t, "random, the heavy endpoint of its locality", predict(dataplane.Random)[1].Endpoints[1].Share/predict(dataplane.Random)[1].Share, 0.5)
	for _, p := range []dataplane.LBPolicy{dataplane.RingHash, dataplane.Maglev} {
		near(t, "hashes, a locality with 1 of 4 healthy", predict(p)[0].Share, 0.5)
		near(t, "hashes, its healthy host", predict(p)[0].Endpoints[0].Share, 0.5)
		near(t, "hashes, the heavy endpoint", predict(p)[1].Endpoints[1].Share, 0.375)
	}
	c.Priorities[0].Localities[0].Weight, c.Priorities[0].Localities[1].Weight = 0, 0
	near(t, "hashes without weights", predict(dataplane.Maglev)[0].Share+predict(dataplane.Maglev)[1].Share, 0)
	for _, name := range dataplane.LBPolicies() {
		if p, err := dataplane.ParseLBPolicy(name); err != nil || p.String() != name {
			t.Errorf("%s is read as %s, %v", name, p, err)
		}
	}
	if _, err := dataplane.ParseLBPolicy("fastest"); err == nil {
		t.Error("an unknown policy is read")
	}
}
