package resource_test

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

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

func TestAliasOf(t *testing.T) {
	for name, want := range map[string]string{
		"checkout.shop.svc.cluster.local:80":   "checkout.shop:80",
		"checkout.shop.svc:80":                 "checkout.shop:80",
		"checkout.shop:80":                     "",
		"checkout.shop.svc.cluster.local":      "",
		"checkout.shop.svc.cluster.local:":     "",
		"shop.svc.cluster.local:80":            "",
		".shop.svc:80":                         "",
		"checkout..svc:80":                     "",
		"pod-1.checkout.shop.svc:80":           "",
		"checkout.shop.svc.example.org:80":     "",
		"checkout.shop.svc.clusterset.local:1": "",
		"a/checkout.shop.svc:80":               "",
		"svc:80":                               "",
		"":                                     "",
	} {
		if got := resource.AliasOf(name); got != want {
			t.Errorf("AliasOf(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestListenerWithAlias: the listener has the name by which it was asked for, and its
// routes have that of the service.
func TestListenerWithAlias(t *testing.T) {
	const authority = "xdstp://isobar/envoy.config."
	for name, want := range map[string]string{
		"checkout.shop:80":     "checkout.shop:80",
		"checkout.shop.svc:80": "checkout.shop:80",
		authority + "listener.v3.Listener/checkout.shop:80":           authority + "route.v3.RouteConfiguration/checkout.shop:80",
		authority + "listener.v3.Listener/checkout.shop%3A80":         authority + "route.v3.RouteConfiguration/checkout.shop%3A80",
		authority + "listener.v3.Listener/checkout.shop.svc:80":       authority + "route.v3.RouteConfiguration/checkout.shop:80",
		authority + "listener.v3.Listener/checkout.shop.svc:80?a=b/c": authority + "route.v3.RouteConfiguration/checkout.shop:80?a=b/c",
		authority + "listener.v3.Listener/checkout.shop.svc:80?a=b#x": authority + "route.v3.RouteConfiguration/checkout.shop:80?a=b#x",
	} {
		m, err := resource.StaticOf(resource.Listener, &isobar.Service{Name: "checkout.shop:80"}, name, true)
		if err != nil {
			t.Fatal(err)
		}
		l, _ := m.(*listenerv3.Listener)
		manager := &hcmv3.HttpConnectionManager{}
		if err := l.GetApiListener().GetApiListener().UnmarshalTo(manager); err != nil {
			t.Fatal(err)
		}
		if got := manager.GetRds().GetRouteConfigName(); got != want || l.GetName() != name {
			t.Errorf("listener %s: named %s, routes %s, want %s", name, l.GetName(), got, want)
		}
	}
}
