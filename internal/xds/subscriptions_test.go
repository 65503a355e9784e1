package xds_test

import (
	"testing"
	"testing/synctest"

	"github.com/isobar-xds/isobar/internal/xds/view"
)

// To ask who subscribes to what waits for no encoding: while a publication is on its way,
// what is new in it counts as acknowledged by nobody, and all else as before.
func TestSubscriptionsWhileAPublicationIsOnItsWay(t *testing.T) {
	inWorld(t, func(w *world) {
		encoding := make(chan struct{})
		w.builder = view.NewBuilder(view.Options{Refused: func(view.Refusal) { <-encoding }})
		w.publish(serve("a", 1), serve("b", 1))
		c := w.ads(at("us-east/b")).request(edsURL, "a", "b")
		c.take()
		c.ack(edsURL).nothing()
		acknowledged := func(service string, want int) {
			t.Helper()
			for _, s := range w.server.Subscriptions() {
				if s.Service == service && (s.Streams != 1 || s.Acked != want || s.AckedAt.IsZero() != (want == 0)) {
					t.Errorf("%+v, want %d that acknowledged it", s, want)
				}
			}
			if n := len(w.server.Subscriptions()); n != 2 {
				t.Errorf("%d subscriptions, want 2", n)
			}
		}
		acknowledged("a", 1)
		acknowledged("b", 1)

		broken := assignmentOf("b", 2)
		broken.Priorities[0][0].Endpoints[0].Address = "nowhere"
		w.publish(func(p *testPlan) { p.assignments["b"] = broken })
		synctest.Wait() // the publication waits for the encoding
		acknowledged("a", 1)
		acknowledged("b", 0)

		close(encoding)
		synctest.Wait()
		acknowledged("a", 1)
		acknowledged("b", 1) // the broken assignment was refused: clients have the last good one
	})
}
