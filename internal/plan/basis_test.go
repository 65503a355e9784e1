package plan_test

import (
	"encoding/json"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestBasis: where it is equal in two plans all clients get the same, also those
// in places that the plan does not know; it is equal where nothing was decided.
func TestBasis(t *testing.T) {
	top := threeZones(t)
	other := top.Services[0]
	other.Name = "other"
	top.Services = append(top.Services, other)
	top.Normalize()
	before := ticks(t, top, 3, map[string]float64{"us/a": 400, "us/b": 100})
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: loc("us"), To: loc("eu"), MS: 10}})
	if err != nil {
		t.Fatal(err)
	}
	moved := *top
	moved.Network, moved.Revision = network, 2
	sick := health.NewTable([]health.Override{{Key: health.Key{Service: "checkout", Address: "10.0.0.1:80"}, Status: isobar.Unhealthy}})
	for _, tt := range []struct {
		name            string
		in              plan.Input
		checkout, other bool // the basis is equal
	}{
		{"nothing", plan.Input{Trigger: assign.Rebase, Topology: top}, true, true},
		{"health", plan.Input{Trigger: assign.Rebase, Topology: top, Health: sick}, false, true},
		{"network", plan.Input{Trigger: assign.Rebase, Topology: &moved}, false, false},
		{"new client", plan.Input{Trigger: assign.Rebase, Topology: top, Subscribed: []load.Subscription{{Service: "other", Source: loc("eu/b")}}}, true, false},
		{"tick", plan.Input{Trigger: assign.Tick, Topology: top, Load: demand(t0, "checkout", map[string]float64{"us/a": 500})}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.Now, tt.in.Previous, tt.in.Version = t0, before, before.Version+1
			after, err := plan.Next(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]bool{"checkout": tt.checkout, "other": tt.other} {
				equal := before.Basis(name) == after.Basis(name)
				if equal != want {
					t.Errorf("the basis of %s is equal: %v, want %v", name, equal, want)
				}
				for _, z := range []string{"", "us/a", "us/b", "eu/a", "eu/b", "ap/a"} {
					if equal && assignedTo(t, before, name, z) != assignedTo(t, after, name, z) {
						t.Errorf("%s in %q gets something else on an equal basis", name, z)
					}
				}
			}
		})
	}
	if b := before.Basis("missing"); b != nil {
		t.Errorf("the basis of a service that is not there: %v", b)
	}
}

func assignedTo(t *testing.T, p *plan.Plan, service, source string) string {
	t.Helper()
	b, err := json.Marshal(p.Assignment(service, loc(source)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
