package resource_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// What comes back from 2017: the usable endpoints with address, metadata and
// weight; weights that say the same within 1 to 128; one drop.
func TestV3To2017AndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawSent(t)
		got, encoded := thereAndBack(t, rpc.V2017, m)
		if err := resource.CheckAssignment(got, m.GetClusterName()); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(fmt.Sprint(fieldsOf(t, encoded)), "policy") && len(m.GetPolicy().GetDropOverloads()) == 0 {
			t.Fatal("a policy without a drop")
		}
		if want := dropOf(m); math.Abs(dropOf(got)-want) > 1e-6 {
			t.Fatalf("drops %v, want %v", dropOf(got), want)
		}
		check2017(t, m, got)
	})
}

func fieldsOf(t *rapid.T, m []byte) map[protowire.Number]int {
	out := map[protowire.Number]int{}
	for len(m) > 0 {
		n, _, size := protowire.ConsumeField(m)
		if size < 0 {
			t.Fatal("no message")
		}
		out[n]++
		m = m[size:]
	}
	for n := range out {
		if n != 1 && n != 2 && n != 4 {
			t.Fatalf("field %d was not there in 2017", n)
		}
	}
	return out
}

func dropOf(m *endpointv3.ClusterLoadAssignment) float64 {
	pass := 1.0
	for _, d := range m.GetPolicy().GetDropOverloads() {
		whole := map[typev3.FractionalPercent_DenominatorType]float64{0: 100, 1: 10_000, 2: 1_000_000}[d.GetDropPercentage().GetDenominator()]
		pass *= 1 - float64(d.GetDropPercentage().GetNumerator())/whole
	}
	return 1 - pass
}

// usable tells whether an endpoint stays for a client of 2017, given the best
// that there is anywhere.
func usable(e *endpointv3.LbEndpoint, best int) bool {
	switch best {
	case 2:
		return e.GetHealthStatus() <= corev3.HealthStatus_HEALTHY
	case 1:
		return e.GetHealthStatus() == corev3.HealthStatus_DEGRADED
	default:
		return true
	}
}

func bestOf(m *endpointv3.ClusterLoadAssignment) int {
	best := 0
	for _, l := range m.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			switch {
			case e.GetHealthStatus() <= corev3.HealthStatus_HEALTHY:
				best = 2
			case e.GetHealthStatus() == corev3.HealthStatus_DEGRADED:
				best = max(best, 1)
			}
		}
	}
	return best
}

func check2017(t fataler, m, got *endpointv3.ClusterLoadAssignment) {
	best := bestOf(m)
	next := 0
	for _, l := range m.GetEndpoints() {
		var want []*endpointv3.LbEndpoint
		for _, e := range l.GetLbEndpoints() {
			if usable(e, best) {
				want = append(want, e)
			}
		}
		if len(want) == 0 && best > 0 {
			continue
		}
		g := got.GetEndpoints()[next]
		next++
		if !proto.Equal(g.GetLocality(), l.GetLocality()) || len(g.GetLbEndpoints()) != len(want) {
			t.Fatalf("got %v, want what is usable of %v", g, l)
		}
		var before, after []uint32
		for i, e := range g.GetLbEndpoints() {
			if !proto.Equal(e.GetEndpoint().GetAddress(), want[i].GetEndpoint().GetAddress()) || !proto.Equal(e.GetMetadata(), want[i].GetMetadata()) ||
				e.GetEndpoint().GetHostname() != "" || e.GetHealthStatus() > corev3.HealthStatus_HEALTHY {
				t.Fatalf("got %v, want %v", e, want[i])
			}
			before = append(before, want[i].GetLoadBalancingWeight().GetValue())
			after = append(after, e.GetLoadBalancingWeight().GetValue())
		}
		checkWeights(t, before, after)
	}
	if next != len(got.GetEndpoints()) {
		t.Fatalf("%d localities, want %d", len(got.GetEndpoints()), next)
	}
}

// checkWeights holds weights of 2017 to the bound on their distortion.
func checkWeights(t fataler, before, after []uint32) {
	var sumBefore, sumAfter float64
	for i := range before {
		sumBefore += float64(before[i])
		sumAfter += float64(after[i])
	}
	for i := range before {
		if after[i] < 1 || after[i] > 128 {
			t.Fatalf("weight %d", after[i])
		}
		off := math.Abs(float64(after[i])/sumAfter - float64(before[i])/sumBefore)
		if bound := float64(len(before)+1) / 128; off > bound {
			t.Fatalf("%v became %v: a share is off by %v, more than %v", before, after, off, bound)
		}
	}
}

// Weights are rescaled as well as a search over all pairs can.
func TestRescaleIsTheBestScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Uint32Range(1, 10_000), 2, 2).Draw(t, "weights")
		m := &endpointv3.ClusterLoadAssignment{ClusterName: "a"}
		for i, w := range weights {
			m.Endpoints = append(m.Endpoints, &endpointv3.LocalityLbEndpoints{
				Locality:            &corev3.Locality{Region: fmt.Sprint(i)},
				LoadBalancingWeight: wrapperspb.UInt32(w),
				LbEndpoints: []*endpointv3.LbEndpoint{{
					HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{}}, LoadBalancingWeight: wrapperspb.UInt32(1),
				}},
			})
		}
		got, _ := thereAndBack(t, rpc.V2017, m)
		share := func(a, b uint32) float64 { return float64(a) / float64(a+b) }
		want := share(weights[0], weights[1])
		off := math.Abs(share(got.GetEndpoints()[0].GetLoadBalancingWeight().GetValue(), got.GetEndpoints()[1].GetLoadBalancingWeight().GetValue()) - want)
		least := 1.0
		for a := uint32(1); a <= 128; a++ {
			for b := uint32(1); b <= 128; b++ {
				least = min(least, math.Abs(share(a, b)-want))
			}
		}
		if off > least+1e-12 {
			t.Fatalf("%v: off by %v, %v was possible", weights, off, least)
		}
	})
}
