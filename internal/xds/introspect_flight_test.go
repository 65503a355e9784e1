package xds_test

import (
	"testing"

	"github.com/isobar-xds/isobar/internal/xds"
)

// To look at a client changes nothing: what is on its way is told once, and is
// still taken for rejected when the client says so.
func TestIntrospectionOfWhatIsOnItsWay(t *testing.T) {
	for _, url := range []string{cdsURL, ldsURL, rdsURL, edsURL} {
		inWorld(t, func(w *world) {
			w.publish(serve("a", 1), serve("b", 1))
			c := w.ads(at("us-east/b")).request(url, "a", "b")
			c.take()
			look := func(want xds.Delivery) {
				t.Helper()
				for i := range w.server.Introspect() {
					all := i.Resources()
					if len(all) != 2 || all[0].Name != "a" || all[1].Name != "b" || all[0].Delivery != want || all[1].Delivery != want {
						t.Errorf("%s: %+v, want a and b, %v", url, all, want)
					}
				}
			}
			look(xds.Unanswered)
			look(xds.Unanswered)
			c.nack(url, "no")
			c.nothing()
			look(xds.Rejected)
			if all := w.server.Clients(); len(all) != 1 || all[0].InSync {
				t.Errorf("%s: in sync although it refuses: %+v", url, all)
			}
		})
	}
}
