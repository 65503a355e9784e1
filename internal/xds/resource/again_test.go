package resource

import (
	"testing"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// A listener that returns holds the routes itself: C-core takes routes that it gets
// by name for those that it has, and goes on without any.
func TestAListenerThatReturnsHoldsItsRoutes(t *testing.T) {
	s := &isobar.Service{Name: "checkout"}
	for _, name := range []string{"checkout", "xdstp://a/envoy.config.listener.v3.Listener/checkout"} {
		routes, err := routeOf(s, name)
		if err != nil {
			t.Fatal(err)
		}
		prefixes := map[string]bool{}
		for _, mark := range []uint16{1, 2} {
			l, err := listenerOf(s, name)
			if err != nil {
				t.Fatal(err)
			}
			if err := Remark(l, s, name, mark); err != nil {
				t.Fatal(err)
			}
			var manager hcmv3.HttpConnectionManager
			if err := l.GetApiListener().GetApiListener().UnmarshalTo(&manager); err != nil {
				t.Fatal(err)
			}
			prefixes[manager.GetStatPrefix()] = true
			if !proto.Equal(manager.GetRouteConfig(), routes) {
				t.Errorf("%s: the listener holds the routes %v, want %v", name, manager.GetRouteConfig(), routes)
			}
			if _, err := EncodeAs(rpc.As{API: rpc.V2}, name, Listener, l, 0); err != nil {
				t.Errorf("%s: in v2: %v", name, err)
			}
		}
		if len(prefixes) != 2 {
			t.Errorf("%s: two returns have the prefixes %v", name, prefixes)
		}
	}
}
