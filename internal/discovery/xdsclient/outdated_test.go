package xdsclient_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
)

// TestOutdated: endpoints are the previous ones from when the stream ends until
// the server has listed them again.
func TestOutdated(t *testing.T) {
	inWorld(t, configuration("a"), func(w *world) {
		u, _ := w.stream()
		u.accepted("1", assignment("a", "10.0.0.1"))
		if got := w.client.Outdated(); len(got) != 0 {
			t.Errorf("just listed, but %+v", got)
		}
		lost := time.Now()
		u.end <- status.Error(codes.Unavailable, "gone to lunch")
		u, _ = w.stream()
		got := w.client.Outdated()
		if len(got) != 1 || got[0].Service != "a" || got[0].Since.Sub(lost) > time.Second {
			t.Errorf("the stream ended at %v: %+v", lost, got)
		}
		u.accepted("2", assignment("a", "10.0.0.1"))
		if got := w.client.Outdated(); len(got) != 0 {
			t.Errorf("listed again, but %+v", got)
		}
	})
}

// TestOutdatedWaitsForNobody: the loop asks with each turn, and must not wait until
// a slow disk has taken a change of the configuration.
func TestOutdatedWaitsForNobody(t *testing.T) {
	inWorld(t, configuration("web"), func(w *world) {
		asked := false
		if err := w.client.Configure(configuration("web", "shop"), func(_, _ []isobar.Service) error {
			asked = true
			w.client.Outdated()
			return nil
		}); err != nil || !asked {
			t.Errorf("%v, asked: %t", err, asked)
		}
	})
}
