package resource_test

import (
	"slices"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// dropping is an assignment with the first endpoint that not all API versions have.
func dropping(drop float64, metadata isobar.Metadata) *isobar.Assignment {
	near, far := group("eu/a", "10.0.0.1:80", "10.0.0.2:80"), group("eu/b", "10.0.0.3:80")
	near.Endpoints[0].Health = isobar.Unhealthy
	for i := range near.Endpoints {
		if metadata != "" {
			near.Endpoints[i].Config = &isobar.Endpoint{Address: near.Endpoints[i].Address, Details: &isobar.EndpointDetails{Metadata: metadata}}
		}
	}
	return &isobar.Assignment{Service: "checkout", Drop: drop, Priorities: [][]isobar.LocalityWeight{
		{{EndpointGroup: near, Weight: 7000}, {EndpointGroup: far, Weight: 3000}},
	}}
}

// endpointsOf is what an API version says of the endpoints, without the policy.
func endpointsOf(t *testing.T, as rpc.As, a *isobar.Assignment) *endpointv3.ClusterLoadAssignment {
	t.Helper()
	e, err := resource.EncodeAssignment(as, a.Service, a)
	if err != nil {
		t.Fatal(err)
	}
	body := &anypb.Any{}
	if err := proto.Unmarshal(e.Body, body); err != nil {
		t.Fatal(err)
	}
	m, err := resource.AssignmentFrom(as.API, body.GetValue())
	if err != nil {
		t.Fatal(err)
	}
	m.Policy = nil
	return m
}

// In every API version, endpoints differ whenever drops do, and only then: Envoy ignores
// drops that come alone.
func TestEndpointsChangeWithDrops(t *testing.T) {
	for n := range rpc.Variants {
		as := asVariant(n)
		for _, metadata := range []isobar.Metadata{"", `{"envoy.lb":{"canary":true},"isobar":{"tier":"gold"}}`} {
			var seen []*endpointv3.ClusterLoadAssignment
			for _, drop := range []float64{0, 0.0001, 0.12, 0.1201, 0.51, 0.52, 0.99} {
				m := endpointsOf(t, as, dropping(drop, metadata))
				if slices.ContainsFunc(seen, func(o *endpointv3.ClusterLoadAssignment) bool { return proto.Equal(o, m) }) {
					t.Errorf("%v: the endpoints with a drop of %v are those of another drop: %v", as, drop, m)
				}
				seen = append(seen, m)
				// What rounds to the same drop is the same.
				if !proto.Equal(m, endpointsOf(t, as, dropping(drop*(1+1e-9), metadata))) {
					t.Errorf("%v: endpoints changed without the drop of %v", as, drop)
				}
			}
		}
	}
}

// What endpoints say of drops is not metadata of the user: neither are the user's
// lost, nor does another Isobar that reads the assignment take ours for them.
func TestDropsKeepMetadata(t *testing.T) {
	const users = `{"envoy.lb":{"canary":true},"isobar":{"tier":"gold"}}`
	for _, tt := range []struct{ metadata isobar.Metadata }{{""}, {users}} {
		a := dropping(0.25, tt.metadata)
		m, err := resource.Assignment(a)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range m.GetEndpoints()[0].GetLbEndpoints() {
			_, marked := e.GetMetadata().GetFilterMetadata()["isobar"].GetFields()["drop_overload"]
			if marked != (i == 0) {
				t.Errorf("endpoint %d says of drops: %v", i, marked)
			}
			if got, err := resource.MetadataOf(e.GetMetadata()); err != nil || got != tt.metadata {
				t.Errorf("endpoint %d has metadata %s, %v, want %s", i, got, err, tt.metadata)
			}
		}
	}
}

// An endpoint that turns from unhealthy to draining, or back, differs in more than
// its health: Envoy takes that alone for no change.
func TestMarksOfDraining(t *testing.T) {
	for n := range rpc.Variants {
		as := asVariant(n)
		if as.API == rpc.V2017 {
			continue // it has no health, and leaves out both
		}
		for _, drop := range []float64{0, 0.3} {
			with := func(first, second isobar.HealthStatus) *endpointv3.ClusterLoadAssignment {
				a := dropping(drop, "")
				es := a.Priorities[0][0].Endpoints
				es[0].Health, es[1].Health = first, second
				m := endpointsOf(t, as, a)
				for _, l := range m.GetEndpoints() {
					for _, e := range l.GetLbEndpoints() {
						e.HealthStatus = 0
					}
				}
				return m
			}
			var seen []*endpointv3.ClusterLoadAssignment
			for _, hs := range [][2]isobar.HealthStatus{
				{isobar.Unhealthy, isobar.Unhealthy}, {isobar.Draining, isobar.Unhealthy},
				{isobar.Unhealthy, isobar.Draining}, {isobar.Draining, isobar.Draining},
			} {
				m := with(hs[0], hs[1])
				if slices.ContainsFunc(seen, func(o *endpointv3.ClusterLoadAssignment) bool { return proto.Equal(o, m) }) {
					t.Errorf("%v: nothing but their health says that the endpoints are %v", as, hs)
				}
				seen = append(seen, m)
			}
			if !proto.Equal(with(isobar.Unhealthy, isobar.Healthy), with(isobar.Timeout, isobar.Degraded)) {
				t.Errorf("%v: endpoints that do not drain are marked", as)
			}
		}
	}
}

// asVariant is the inverse of rpc.As.Variant.
func asVariant(n int) rpc.As {
	if n == rpc.APIVersions {
		return rpc.As{TTL: true}
	}
	return rpc.As{API: rpc.APIVersion(n)}
}
