package xds_test

import (
	"net/http"
	"testing"
)

// A service whose endpoints are not known yet is not gone: nobody is told that it
// has none, or has its cluster removed, and its endpoints come when they are
// known.
func TestAwaitedServices(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), serve("late", 2))
		before := w.delta(at("us-east/b"))
		held := before.versions(edsURL, "a", "late")
		clusters := before.versions(cdsURL)
		before.close()
		w.publish(without("late"), await("late"), serve("a", 3))

		const path = "/v3/discovery:endpoints"
		polled := w.poll(path, pollBody("another server's", "n", "late", "none"))
		if polled.status != http.StatusOK || len(polled.All) != 1 {
			t.Errorf("a poll: %d %s, want that nothing is left of the one, and nothing said of the other", polled.status, polled.body)
		}
		whole := w.ads(at("us-east/b"))
		whole.request(cdsURL).equals("cds v2: a late").ack(cdsURL)
		whole.request(edsURL, "a", "late").equals("eds v2: a@3").ack(edsURL).nothing()
		c := w.delta(at("us-east/b"))
		c.deltaRequest(cdsURL, clusters).equals("cds v2:").ack(cdsURL)
		c.deltaRequest(edsURL, held, "a", "late").equals("eds v2: a@3 -late").ack(edsURL).nothing()

		w.publish(serve("late", 4))
		whole.equals("eds v3: late@4").ack(edsURL).nothing()
		c.equals("eds v3: late@4").ack(edsURL).nothing()
		if got := w.poll(path, pollBody(polled.Version, "n", "late", "none")); got.status != http.StatusOK || len(got.All) != 2 {
			t.Errorf("a poll: %d %s", got.status, got.body)
		}
	})
}

// Who polls for what there never was is not told that it is empty.
func TestPollOfWhatNeverWas(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		const path = "/v3/discovery:endpoints"
		for _, names := range [][]string{{"late"}, {"a", "late"}} {
			first := w.poll(path, pollBody("", "n", names...))
			if first.status != http.StatusOK || len(first.All) != len(names)-1 {
				t.Fatalf("%v: %d %s", names, first.status, first.body)
			}
			if second := w.poll(path, pollBody(first.Version, "n", names...)); second.status != http.StatusNotModified {
				t.Errorf("%v: %d %s", names, second.status, second.body)
			}
		}
	})
}
