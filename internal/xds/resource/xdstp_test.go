package resource_test

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

func TestXDSTPNames(t *testing.T) {
	const cluster, endpoints = "xdstp://a/envoy.config.cluster.v3.Cluster/", "xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/"
	for _, c := range []struct {
		kind       resource.Kind
		name, want string
	}{
		{resource.Cluster, "checkout", "checkout"},
		{resource.Cluster, cluster + "checkout", "checkout"},
		{resource.Cluster, cluster + "checkout?env=prod#x", "checkout"},
		{resource.Cluster, cluster + "outbound%7C80%7C%7Ca.b", "outbound|80||a.b"},
		{resource.Cluster, "xdstp:///envoy.config.cluster.v3.Cluster/x/y", "x/y"},
		{resource.Cluster, cluster + "shop%2fcheckout%2Fhttp?a=1", "shop/checkout/http"},
		{resource.Cluster, endpoints + "checkout", ""},
		{resource.Endpoints, endpoints + "checkout", "checkout"},
		{resource.Cluster, cluster, ""},
		{resource.Cluster, cluster + "%zz", ""},
		{resource.Cluster, "xdstp://", ""},
		{resource.Cluster, "xdstp://a", ""},
		{resource.Cluster, "xdstp://a/b", ""},
	} {
		if got := resource.ServiceOf(c.kind, c.name); got != c.want {
			t.Errorf("%s %q stands for %q, want %q", c.kind, c.name, got, c.want)
		}
	}
	if got := resource.Renamed(cluster+"x?a=1", resource.Endpoints); got != endpoints+"x?a=1" {
		t.Errorf("got %q", got)
	}
	if got := resource.Renamed(cluster+"shop/checkout%2Fhttp", resource.Endpoints); resource.ServiceOf(resource.Endpoints, got) != "shop/checkout/http" {
		t.Errorf("got %q", got)
	}
	for name, want := range map[string]string{cluster + "x/y/z": "x/y/z", cluster + "x": "x", endpoints + "y?z": "y", "plain": "plain", "xdstp://": ""} {
		if got := resource.ReportedService(name); got != want {
			t.Errorf("%q reports on %q, want %q", name, got, want)
		}
	}
}

// What refers to other resources does so in the same way as it is named.
func TestXDSTPResources(t *testing.T) {
	const name = "xdstp://a/envoy.config.cluster.v3.Cluster/checkout"
	m, err := resource.StaticOf(resource.Cluster, &isobar.Service{Name: "checkout"}, name, false)
	if err != nil {
		t.Fatal(err)
	}
	c := m.(*clusterv3.Cluster)
	if c.GetName() != name || c.GetEdsClusterConfig().GetServiceName() != resource.Renamed(name, resource.Endpoints) {
		t.Errorf("got %v", c)
	}
}
