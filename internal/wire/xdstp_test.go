package wire_test

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/wire"
)

func TestXDSTPNames(t *testing.T) {
	const cluster, endpoints = "xdstp://a/envoy.config.cluster.v3.Cluster/", "xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/"
	for _, c := range []struct {
		kind       wire.Kind
		name, want string
	}{
		{wire.Cluster, "checkout", "checkout"},
		{wire.Cluster, cluster + "checkout", "checkout"},
		{wire.Cluster, cluster + "checkout?env=prod#x", "checkout"},
		{wire.Cluster, cluster + "outbound%7C80%7C%7Ca.b", "outbound|80||a.b"},
		{wire.Cluster, "xdstp:///envoy.config.cluster.v3.Cluster/x/y", "x/y"},
		{wire.Cluster, endpoints + "checkout", ""},
		{wire.Endpoints, endpoints + "checkout", "checkout"},
		{wire.Cluster, cluster, ""},
		{wire.Cluster, cluster + "%zz", ""},
		{wire.Cluster, "xdstp://", ""},
		{wire.Cluster, "xdstp://a", ""},
		{wire.Cluster, "xdstp://a/b", ""},
	} {
		if got := wire.ServiceOf(c.kind, c.name); got != c.want {
			t.Errorf("%s %q stands for %q, want %q", c.kind, c.name, got, c.want)
		}
	}
	if got := wire.Renamed(cluster+"x?a=1", wire.Endpoints); got != endpoints+"x?a=1" {
		t.Errorf("got %q", got)
	}
	for name, want := range map[string]string{cluster + "x": "x", endpoints + "y?z": "y", "plain": "plain", "xdstp://": ""} {
		if got := wire.ReportedService(name); got != want {
			t.Errorf("%q reports on %q, want %q", name, got, want)
		}
	}
}

// What refers to other resources does so in the same way as it is named.
func TestXDSTPResources(t *testing.T) {
	const name = "xdstp://a/envoy.config.cluster.v3.Cluster/checkout"
	m, err := wire.StaticOf(wire.Cluster, &isobar.Service{Name: "checkout"}, name, false)
	if err != nil {
		t.Fatal(err)
	}
	c := m.(*clusterv3.Cluster)
	if c.GetName() != name || c.GetEdsClusterConfig().GetServiceName() != wire.Renamed(name, wire.Endpoints) {
		t.Errorf("got %v", c)
	}
}
