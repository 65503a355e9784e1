package xdsource_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestOutdated: endpoints are those of before from when the stream ends until
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
