package resource_test

import (
	"errors"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// TestSweepOfListings clears each field of an assignment of another control plane
// in turn, however deep: it is refused, or read with defaults that do no harm,
// and never as something else than the endpoints that are left of it.
func TestSweepOfListings(t *testing.T) {
	full := func() *endpointv3.ClusterLoadAssignment {
		e := listedEndpoint("10.0.0.1", 80)
		e.HealthStatus, e.LoadBalancingWeight = corev3.HealthStatus_DRAINING, wrapperspb.UInt32(3)
		e.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb": {Fields: map[string]*structpb.Value{"a": structpb.NewStringValue("b")}}}}
		e.GetEndpoint().Hostname = "one"
		e.GetEndpoint().HealthCheckConfig = &endpointv3.Endpoint_HealthCheckConfig{PortValue: 81, Hostname: "probe"}
		m := listedAssignment(e, listedEndpoint("10.0.0.2", 80))
		m.Endpoints[0].Locality.SubZone = "s"
		m.Endpoints[0].LoadBalancingWeight = wrapperspb.UInt32(5)
		m.Policy = &endpointv3.ClusterLoadAssignment_Policy{OverprovisioningFactor: wrapperspb.UInt32(150)}
		return m
	}
	before, err := resource.ReadListing(full(), isobar.Locality{})
	if err != nil || before.Endpoints != 2 {
		t.Fatalf("%+v %v", before, err)
	}
	known := []string{"10.0.0.1:80", "10.0.0.2:80"}
	var refused []string
	cleared := 0
	for n := 0; ; n++ {
		m := full()
		i := n
		field, ok := testhelp.ClearField(m.ProtoReflect(), &i)
		if !ok {
			break
		}
		cleared++
		l, err := resource.ReadListing(m, isobar.Locality{})
		if err != nil {
			if !errors.Is(err, rpc.ErrMessage) {
				t.Errorf("%s: %v", field, err)
			}
			if name := string(field.Name()); !slices.Contains(refused, name) {
				refused = append(refused, name)
			}
			continue
		}
		for _, at := range l.Localities {
			for _, e := range at.Endpoints {
				if at.Locality.IsZero() || !slices.Contains(known, e.Address) {
					t.Errorf("%s: %s in %s", field, e.Address, at.Locality)
				}
			}
		}
		if l.Endpoints+l.LeftOut != 2 && field.Name() != "endpoints" && field.Name() != "lb_endpoints" {
			t.Errorf("%s: %d endpoints, %d left out", field, l.Endpoints, l.LeftOut)
		}
	}
	slices.Sort(refused) // a value is that of a weight, which is 0 then
	if want := []string{"locality", "port_value", "value"}; cleared < 25 || !slices.Equal(refused, want) {
		t.Errorf("of %d fields these are refused without: %q, want %q", cleared, refused, want)
	}
}
