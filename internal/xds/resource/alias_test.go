package resource_test

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

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
