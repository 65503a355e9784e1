package view_test

import (
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// A cluster depends on settings of its service, and its protocol on the health
// checks. When one of them changes, the cluster changes; the assignment stays.
func TestAClusterFollowsItsService(t *testing.T) {
	for name, set := range map[string]func(*isobar.Service){
		"orca":       func(s *isobar.Service) { s.ORCA.On = true },
		"orca apart": func(s *isobar.Service) { s.ORCA = isobar.ORCA{On: true, OutOfBand: time.Second} },
		"protocol":   func(s *isobar.Service) { s.Protocol = isobar.ProtocolHTTP2 },
		"gRPC check": func(s *isobar.Service) { s.HealthChecks = []isobar.HealthCheck{{Protocol: isobar.CheckGRPC}} },
		"ejection":   func(s *isobar.Service) { s.OutlierDetection.Off = true },
		"panic":      func(s *isobar.Service) { s.HealthyPanicThreshold = new(uint32) },
		"TLS":        func(s *isobar.Service) { s.TLS = &isobar.EndpointTLS{CA: "/ca.pem"} },
	} {
		t.Run(name, func(t *testing.T) { clusterFollows(t, set) })
	}
}

func clusterFollows(t *testing.T, set func(*isobar.Service)) {
	t.Helper()
	b := view.NewBuilder(view.Options{})
	a, other := assignment("a", 1), assignment("b", 1)
	first := b.Build(planOf("1", a, other), nil)
	v1 := first.View(east, nil, all)
	cluster, endpoints := v1.Lookup(resource.Cluster, "a"), v1.Lookup(resource.Endpoints, "a")

	next := planOf("2", a, other)
	set(next.specs[0])
	second := b.Build(next, first)
	v2 := second.View(east, v1, all)
	if r := v2.Lookup(resource.Cluster, "a"); r == cluster || r.Version == cluster.Version {
		t.Error("the cluster did not follow its service")
	}
	if changed, known := v2.Changed(first.Seq(), resource.Cluster); !known || !slices.Equal(changed, []string{"a"}) {
		t.Errorf("changed clusters: %v, %v", changed, known)
	}
	if v2.Lookup(resource.Endpoints, "a") != endpoints {
		t.Error("the assignment changed with the cluster")
	}
}

// gRPC clients have a cluster of their own under the same name, and the same of
// all else.
func TestClustersForGRPC(t *testing.T) {
	p := planOf("1", assignment("a", 1))
	p.specs[0].TLS = &isobar.EndpointTLS{SNI: "a.example", CA: "/ca.pem"}
	v := view.NewBuilder(view.Options{}).Build(p, nil).View(east, nil, all)
	for _, api := range []rpc.APIVersion{rpc.V3, rpc.V2} {
		envoy, grpc := rpc.As{API: api}, rpc.As{API: api, GRPC: true}
		for _, name := range []string{"a", "xdstp://x/envoy.config.cluster.v3.Cluster/a"} {
			if of, other := v.LookupAs(envoy, resource.Cluster, name), v.LookupAs(grpc, resource.Cluster, name); of == nil || other == nil || of.Version == other.Version {
				t.Errorf("%v %s: Envoy gets %v, gRPC %v", api, name, of, other)
			}
		}
		if v.LookupAs(envoy, resource.Listener, "a") != v.LookupAs(grpc, resource.Listener, "a") || v.LookupAs(envoy, resource.Endpoints, "a") != v.LookupAs(grpc, resource.Endpoints, "a") {
			t.Errorf("%v: listener or assignment differ", api)
		}
	}
}

// What changed and what is gone is told in full.
func TestAllChangesAreTold(t *testing.T) {
	b := view.NewBuilder(view.Options{})
	first := b.Build(planOf("1", assignment("a", 1), assignment("b", 1), assignment("c", 1), assignment("d", 1)), nil)
	v1 := first.View(east, nil, all)
	for _, name := range []string{"a", "b", "c", "d"} {
		v1.Lookup(resource.Endpoints, name)
	}
	second := b.Build(planOf("2", assignment("a", 2), assignment("b", 2)), first)
	v2 := second.View(east, v1, all)
	if changed, known := v2.Changed(first.Seq(), resource.Endpoints); !known || !slices.Equal(changed, []string{"a", "b", "c", "d"}) {
		t.Errorf("changed assignments: %v, %v", changed, known)
	}
	if changed, known := v2.Changed(first.Seq(), resource.Cluster); !known || !slices.Equal(changed, []string{"c", "d"}) {
		t.Errorf("changed clusters: %v, %v", changed, known)
	}
}
