package xds_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/isobar-xds/isobar/internal/xds"
)

// introspected is what the only client was told, in short.
func (w *world) introspected() (out []string) {
	w.t.Helper()
	synctest.Wait()
	before := w.server.Clients()
	for c := range w.server.Introspect() {
		for _, r := range c.Resources() {
			text := fmt.Sprintf("%s %s", r.TypeURL[strings.LastIndexByte(r.TypeURL, '.')+1:], r.Name)
			text += [...]string{" not sent", " unanswered", " accepted", " rejected"}[r.Delivery]
			if r.Newer {
				text += ", newer"
			}
			if r.Absent {
				text += ", absent"
			}
			if (r.Sent == nil) != (r.Delivery == xds.NotSent) || (r.Sent != nil && r.At.IsZero()) || (r.Nack.Text != "") != (r.Delivery == xds.Rejected) {
				w.t.Errorf("%s does not hold together: %+v", text, r)
			}
			out = append(out, text)
		}
	}
	if after := w.server.Clients(); !reflect.DeepEqual(before, after) {
		w.t.Errorf("looking changed something: %+v, was %+v", after, before)
	}
	return out
}

func (w *world) introspect(want ...string) {
	w.t.Helper()
	if got := w.introspected(); !slices.Equal(got, want) {
		w.t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestIntrospect follows a client through changes that it accepts, rejects and
// leaves unanswered.
func TestIntrospect(t *testing.T) {
	inWorld(t, func(w *world) {
		w.introspect()
		w.publish(serve("a", 1), serve("b", 1))
		c := w.ads(at("us-east/a"))
		w.introspect() // it has not said who it is
		const a, b, none = "ClusterLoadAssignment a", "ClusterLoadAssignment b", "ClusterLoadAssignment none not sent"
		c.request(edsURL, "a", "b", "none").equals("eds v1: a@1 b@1")
		w.introspect(a+" unanswered", b+" unanswered", none)
		c.ack(edsURL)
		w.introspect(a+" accepted", b+" accepted", none)
		w.publish(serve("a", 2))
		c.equals("eds v2: a@2")
		w.introspect(a+" unanswered", b+" accepted", none)
		w.publish(serve("b", 2))
		w.introspect(a+" unanswered", b+" accepted, newer", none)
		c.nack(edsURL, "no").equals("eds v3: b@2").ack(edsURL)
		w.introspect(a+" rejected", b+" accepted", none)
		w.publish(serve("a", 3))
		c.equals("eds v4: a@3").ack(edsURL)
		w.introspect(a+" accepted", b+" accepted", none)
		w.publish(without("b"))
		c.equals("eds v5: b@none").ack(edsURL)
		w.introspect(a+" accepted", b+" accepted", none)
		w.publish(serve("b", 4))
		c.equals("eds v6: b@4").ack(edsURL).request(edsURL, "a").nothing()
		w.introspect(a + " accepted")
	})
}

// TestIntrospectFullSets: what a full set leaves out does not exist, and the
// wildcard covers what was not named.
func TestIntrospectFullSets(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("b", 1))
		c := w.ads(at("us-east/a"))
		c.request(cdsURL).equals("cds v1: a b").ack(cdsURL)
		w.introspect("Cluster a accepted", "Cluster b accepted")
		c.request(cdsURL, "a", "none").equals("cds v1: a").ack(cdsURL)
		w.introspect("Cluster a accepted", "Cluster none not sent, absent")
	})
}

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
