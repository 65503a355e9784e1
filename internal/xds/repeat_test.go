package xds_test

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
)

// TestWhoAsksAgainIsSlowedDown: a client that says in each answer all that it
// wants, and refuses what it gets, is sent the same again, but not as fast as the
// network goes.
func TestWhoAsksAgainIsSlowedDown(t *testing.T) {
	for _, names := range [][]string{{"*"}, {"a", "b"}} {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1), serve("b", 2))
			c := w.delta(at("us-east/b"))
			c.send(&discoveryv3.DeltaDiscoveryRequest{Node: c.node, TypeUrl: cdsURL, ResourceNamesSubscribe: names})
			start, answers := time.Now(), 0
			for answers < 1000 && time.Since(start) < 10*time.Second {
				for _, m := range c.take() {
					answers++
					nonce := m.(*discoveryv3.DeltaDiscoveryResponse).GetNonce()
					c.send(&discoveryv3.DeltaDiscoveryRequest{
						TypeUrl: cdsURL, ResponseNonce: nonce, ResourceNamesSubscribe: names, ErrorDetail: &statuspb.Status{Message: "no"},
					})
				}
				<-time.After(100 * time.Millisecond)
			}
			if answers < 5 || answers > 20 {
				t.Errorf("%q: %d answers in 10 s", names, answers)
			}
		})
	}
}
