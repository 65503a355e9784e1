package xds_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-xds/isobar/internal/xds"
)

type addressKey struct{}

// byAddress lets clients that poll count under their address.
func byAddress(o *xds.Options) {
	o.Account = func(ctx context.Context) string {
		address, _ := ctx.Value(addressKey{}).(string)
		return address
	}
}

// pollFrom polls for a from an address.
func (w *world) pollFrom(address, id, zone string) int { return w.pollNames(address, id, zone, "a") }

// pollNames polls for names from an address.
func (w *world) pollNames(address, id, zone string, names ...string) int {
	body := strings.Replace(pollBody("", id, names...), `"zone":"b"`, `"zone":"`+zone+`"`, 1)
	ctx := context.WithValue(w.t.Context(), addressKey{}, address)
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v3/discovery:endpoints", strings.NewReader(body))
	r.RemoteAddr = address + ":1000"
	answer := httptest.NewRecorder()
	xds.Handler(w.server, false).ServeHTTP(answer, r)
	return answer.Code
}

// TestOneAddressCannotTakeAllPolls: neither the room for clients nor that for
// localities, and it has room again when its clients are forgotten.
func TestOneAddressCannotTakeAllPolls(t *testing.T) {
	for name, set := range map[string]func(*xds.Options){
		"clients":    func(o *xds.Options) { o.MaxStreams = 20 },
		"localities": func(o *xds.Options) { o.MaxLocalities = 40 },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.publish(serve("a", 1))
				fill := func() (taken int) {
					for i := range 20 {
						switch got := w.pollFrom("10.0.0.1", fmt.Sprint("n", i), fmt.Sprint("z", i)); got {
						case http.StatusOK:
							taken++
						case http.StatusTooManyRequests:
						default:
							t.Fatal(got)
						}
					}
					return taken
				}
				if taken := fill(); taken != 10 {
					t.Errorf("one address took %d of 20", taken)
				}
				if got := w.pollFrom("10.0.0.1", "n0", "z0"); got != http.StatusOK {
					t.Errorf("one that is known: %d", got)
				}
				if got := w.pollFrom("10.0.0.2", "n", "z"); got != http.StatusOK {
					t.Errorf("another address: %d", got)
				}
				<-time.After(6 * time.Minute)
				if taken := fill(); taken != 10 {
					t.Errorf("later it took %d of 20", taken)
				}
			}, byAddress, set)
		})
	}
}

// TestOneAddressCannotTakeAllMemoryOfPolls asserts that the clients of one address get a
// quarter of the memory for names that clients poll for, again when they are forgotten, and
// that a list which clients of two addresses share counts once.
func TestOneAddressCannotTakeAllMemoryOfPolls(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		fill := func(address string, round int) (taken int) {
			for i := range 20 {
				names := make([]string, 100)
				for j := range names {
					names[j] = fmt.Sprintf("none-%s-%d-%d-%d", address, round, i, j)
				}
				switch got := w.pollNames(address, fmt.Sprint("n", i), "b", names...); got {
				case http.StatusOK:
					taken++
				case http.StatusTooManyRequests:
				default:
					t.Fatal(got)
				}
			}
			return taken
		}
		const each = 8 // of 120 KB, in 1 MiB
		for _, address := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
			if taken := fill(address, 1); taken != each {
				t.Errorf("%s took %d of 20, want %d", address, taken, each)
			}
		}
		if got := w.pollNames("10.0.0.1", "n0", "b", "a"); got != http.StatusOK {
			t.Errorf("a small one of the first address: %d", got)
		}
		<-time.After(6 * time.Minute)
		if taken := fill("10.0.0.1", 2); taken != each {
			t.Errorf("later the first took %d of 20, want %d", taken, each)
		}
		many := make([]string, 1_200)
		for j := range many {
			many[j] = fmt.Sprint("many-", j)
		}
		if got := w.pollNames("10.0.3.1", "n", "b", many...); got != http.StatusTooManyRequests {
			t.Errorf("a first list of more than 1 MiB: %d", got)
		}
		shared := make([]string, 100)
		for j := range shared {
			shared[j] = fmt.Sprint("shared-", j)
		}
		before, _, _, _ := w.server.PollMemory()
		for i := range 4 {
			if got := w.pollNames(fmt.Sprint("10.0.1.", i), "n", "b", shared...); got != http.StatusOK {
				t.Errorf("client %d of a list that several share: %d", i, got)
			}
		}
		if after, _, _, _ := w.server.PollMemory(); after-before > 180_000 {
			t.Errorf("4 clients with one list of 100 names take %d bytes", after-before)
		}
		<-time.After(6 * time.Minute)
		w.pollNames("10.0.2.1", "n", "b", "a") // which looks for who is gone
		<-time.After(time.Minute)
		if used, _, fullest, _ := w.server.PollMemory(); used > 4096 || fullest > used {
			t.Errorf("%d bytes are in use when all but one are forgotten, %d of one address", used, fullest)
		}
	}, byAddress, func(o *xds.Options) { o.PollMemory = 4 << 20 })
}

// TestSharedListsCreditWhoPaid: an address that came back is given nothing back for a list that
// counted for it before it was forgotten.
func TestSharedListsCreditWhoPaid(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		names := func(list string, n int) []string {
			out := make([]string, n)
			for i := range out {
				out[i] = fmt.Sprint(list, "-", i)
			}
			return out
		}
		poll := func(address string, names ...string) {
			if got := w.pollNames(address, "n", "b", names...); got != http.StatusOK {
				t.Fatalf("%s polls for %d names: %d", address, len(names), got)
			}
		}
		poll("10.0.0.1", names("shared", 700)...)
		for range 3 { // the first address is forgotten, the second is not
			poll("10.0.0.2", names("shared", 700)...)
			<-time.After(3 * time.Minute)
		}
		for range 3 { // it comes back, and the second is forgotten
			poll("10.0.0.1", names("own", 300)...)
			<-time.After(3 * time.Minute)
		}
		if used, _, fullest, _ := w.server.PollMemory(); fullest != used || used < 300_000 {
			t.Errorf("the only address has %d of %d bytes", fullest, used)
		}
	}, byAddress, func(o *xds.Options) { o.PollMemory = 4 << 20 })
}

// TestWhoAsksOnceHoldsNobodyUp: whether clients have what is published is judged
// by those that say what they have.
func TestWhoAsksOnceHoldsNobodyUp(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		c := w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1").ack(edsURL).nothing()
		if got := w.pollFrom("10.0.0.1", "curl", "b"); got != http.StatusOK {
			t.Fatal(got)
		}
		w.publish(serve("a", 2))
		c.equals("eds v2: a@2").ack(edsURL).nothing()
		if s := w.server.Subscriptions(); len(s) != 1 || s[0].Streams != 2 || s[0].AckedAt.IsZero() {
			t.Errorf("beside one that asked once: %+v", s)
		}
		const path = "/v3/discovery:endpoints"
		first := w.poll(path, pollBody("", "n", "a"))
		w.poll(path, pollBody(first.Version, "n", "a")) // it says what it has: from now on it is waited for
		w.publish(serve("a", 3))
		c.equals("eds v3: a@3").ack(edsURL).nothing()
		if s := w.server.Subscriptions(); !s[0].AckedAt.IsZero() {
			t.Errorf("beside one that has not polled since: %+v", s)
		}
		<-time.After(6 * time.Minute)
		w.poll("/v3/discovery:clusters", pollBody("", "n")) // which looks for who is gone
		if s := w.server.Subscriptions(); len(s) != 1 || s[0].Streams != 1 || s[0].Acked != 1 || s[0].AckedAt.IsZero() {
			t.Errorf("when the others are forgotten: %+v", s)
		}
	})
}

// TestPollersAreCountedOnce: also those that restart, of a service that goes
// and comes.
func TestPollersAreCountedOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		const path = "/v3/discovery:endpoints"
		for i := range 6 {
			w.publish(serve("a", 1+i%2))
			synctest.Wait()
			got := w.poll(path, pollBody("", "n", "a"))
			w.poll(path, pollBody(got.Version, "n", "a"))
			if s := w.server.Subscriptions(); len(s) != 1 || s[0].Streams != 1 || s[0].Acked != 1 {
				t.Errorf("round %d: %+v", i, s)
			}
			w.publish(without("a"))
			synctest.Wait()
			w.poll(path, pollBody("", "n", "a"))
		}
	})
}
