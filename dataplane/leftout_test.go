package dataplane_test

import (
	"testing"

	"github.com/isobar-xds/isobar/dataplane"
)

// TestPanicThresholdIsWhole: Envoy cuts percent/100*100 to a whole number, which
// makes 28 of 29.
func TestPanicThresholdIsWhole(t *testing.T) {
	for _, tt := range []struct {
		hosts, healthy int
		threshold      float64
		want           bool
	}{
		{3, 1, 33.4, false},
		{3, 1, 33.9, false},
		{3, 1, 34, true},
		{7, 2, 29, false},
		{7, 2, 30, true},
		{3, 0, 0.9, false},
		{3, 0, 1, true},
		{3, 2, 100, true},
	} {
		loads := dataplane.EnvoyLoads([]dataplane.Hosts{{Total: tt.hosts, Healthy: tt.healthy}}, 100, tt.threshold)
		if loads[0].Panic != tt.want {
			t.Errorf("%d of %d healthy, threshold %v: panic %v, want %v", tt.healthy, tt.hosts, tt.threshold, loads[0].Panic, tt.want)
		}
	}
}

// TestRepeatedHostsAreUnknownToEnvoy: in no count and in no share, neither in
// panic nor without locality weights; gRPC knows them.
func TestRepeatedHostsAreUnknownToEnvoy(t *testing.T) {
	repeated := hosts("a", 3, 1, 0)
	repeated[1].Repeated, repeated[2].Repeated = true, true
	for _, weight := range []uint32{1, 0} {
		c := one(dataplane.Locality{Locality: zone("a"), Weight: weight, Endpoints: repeated})
		got := dataplane.Predict(c, dataplane.Envoy, dataplane.DefaultOptions()).Priorities[0]
		if got.Panic || got.Load != 100 {
			t.Errorf("1 of 1 healthy, weight %d: %+v", weight, got)
		}
		near(t, "the one that is left", got.Localities[0].Endpoints[0].Share, 1)
	}

	dead := hosts("a", 4, 1, 0)
	dead[0].Repeated = true
	got := dataplane.Predict(one(dataplane.Locality{Locality: zone("a"), Weight: 1, Endpoints: dead}), dataplane.Envoy, dataplane.DefaultOptions()).Priorities[0]
	if !got.Panic {
		t.Error("the only healthy host is a repeated one, and there is no panic")
	}
	near(t, "a repeated host in panic", got.Localities[0].Endpoints[0].Share, 0)
	near(t, "another host in panic", got.Localities[0].Endpoints[1].Share, 1.0/3)

	live := hosts("a", 2, 2, 0)
	live[1].Repeated = true
	shares := dataplane.Predict(one(
		dataplane.Locality{Locality: zone("a"), Weight: 1, Endpoints: live},
		dataplane.Locality{Locality: zone("b"), Weight: 1, Endpoints: hosts("b", 2, 1, 0)},
	), dataplane.GRPC, dataplane.DefaultOptions()).Priorities[0].Localities[0].Endpoints
	near(t, "gRPC, a repeated host", shares[1].Share, 0.25)
}

// TestGRPCSkipsUnweightedHosts, which Envoy counts with their locality.
func TestGRPCSkipsUnweightedHosts(t *testing.T) {
	es := hosts("a", 2, 2, 0)
	es[0].Unweighted = true
	c := one(dataplane.Locality{Locality: zone("a"), Weight: 1, Endpoints: es})
	near(t, "gRPC", dataplane.Predict(c, dataplane.GRPC, dataplane.DefaultOptions()).Priorities[0].Localities[0].Endpoints[1].Share, 1)
	near(t, "envoy", dataplane.Predict(c, dataplane.Envoy, dataplane.DefaultOptions()).Priorities[0].Localities[0].Endpoints[0].Share, 0.5)
}
