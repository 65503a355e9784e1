package xds

import (
	"bytes"
	"runtime"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// unplanned is a plan without services.
type unplanned struct{}

func (unplanned) VersionString() string                                 { return "1" }
func (unplanned) RequestLimit(string) uint32                            { return 0 }
func (unplanned) Awaited() []isobar.Service                             { return nil }
func (unplanned) ServiceNames() []string                                { return nil }
func (unplanned) Spec(string) *isobar.Service                           { return nil }
func (unplanned) Assignment(string, isobar.Locality) *isobar.Assignment { return nil }
func (unplanned) Basis(string) any                                      { return nil }

// TestAcknowledgedPollsLeaveTheServerUnlocked asserts that no lock of the server is held while the acknowledgement of a
// client that polls is noted for each of its names: it may have tens of thousands.
func TestAcknowledgedPollsLeaveTheServerUnlocked(t *testing.T) {
	s := New(Options{})
	t.Cleanup(s.Stop)
	s.Publish(view.NewBuilder(view.Options{}).Build(unplanned{}, nil))
	p, r, err := s.poll(t.Context(), &discoveryv3.DiscoveryRequest{
		TypeUrl: resource.EndpointsURL, ResourceNames: []string{"a", "b"},
		Node: &corev3.Node{Id: "n", Locality: &corev3.Locality{Region: "us"}},
	}, Method{}, "192.0.2.1:1")
	if err != nil {
		t.Fatal(err)
	}
	current, _ := p.group.current()
	a, err := s.answer(p, &r, current, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.Version = a.Version
	done := make(chan error)
	p.group.mu.Lock()
	go func() {
		_, err := s.answer(p, &r, current, 0)
		done <- err
	}()
	stacks := make([]byte, 1<<20)
	testhelp.Eventually(t, "the acknowledgement waits for the group of its locality", func() bool {
		return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("(*localityGroup).awaitACK"))
	})
	free := s.mu.TryLock()
	if free {
		s.mu.Unlock()
	}
	p.group.mu.Unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !free {
		t.Error("the server is locked while an acknowledgement is noted for each name")
	}
	if got := s.Subscriptions(); len(got) != 2 || got[0].Acked != 0 || got[1].Source != (isobar.Locality{Region: "us"}) {
		t.Errorf("subscribed: %+v", got)
	}
}
