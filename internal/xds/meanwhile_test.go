package xds_test

import (
	"fmt"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/isobar-xds/isobar/internal/testhelp"
)

// What clients subscribe to while the next plan is being encoded is counted for
// what is published then. Processors that really work side by side are what this
// is about, so it runs in no bubble.
func TestSubscribedWhileEncoding(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	const many, rounds, late = 300, 10, 40
	var names []string // to be encoded at each change, which takes a while
	for i := range many {
		names = append(names, fmt.Sprint("service-", i))
	}
	change := func(round int) (edits []edit) {
		for _, name := range names {
			edits = append(edits, serve(name, 1+round))
		}
		return edits
	}
	w.publish(change(0)...)
	c := newObedient(t, w)
	c.subscribe(names...)
	for round := range rounds {
		var fresh []string
		for i := range late {
			fresh = append(fresh, fmt.Sprintf("late-%d-%d", round, i))
		}
		names = append(names, fresh...)
		w.publish(change(2 * round)...)
		subscribed := make(chan struct{})
		go func() {
			defer close(subscribed)
			for _, name := range fresh {
				c.subscribe(name)
			}
		}()
		w.publish(change(2*round + 1)...)
		<-subscribed
		testhelp.Eventually(t, fmt.Sprintf("round %d: all is in sync", round), func() bool {
			n := 0
			for _, s := range w.server.Subscriptions() {
				if s.Acked == s.Streams && !s.AckedAt.IsZero() {
					n++
				}
			}
			return n == len(names)
		})
	}
}

// obedient is a delta client that accepts all it gets.
type obedient struct {
	t      *testing.T
	mu     sync.Mutex // a stream has one writer at a time
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func newObedient(t *testing.T, w *world) *obedient {
	t.Helper()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(w.conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := &obedient{t: t, stream: stream}
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				return // the test is over
			}
			c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce()})
		}
	}()
	return c
}

func (c *obedient) subscribe(names ...string) {
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: at("us-east/b"), TypeUrl: edsURL, ResourceNamesSubscribe: names})
}

func (c *obedient) send(m *discoveryv3.DeltaDiscoveryRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.stream.Send(m); err != nil && c.t.Context().Err() == nil {
		c.t.Error(err)
	}
}
