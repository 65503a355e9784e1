package xds_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/xds"
)

// Endpoints that grow stale are polled again, unchanged, in each third of their
// life; whoever has them from this third is told that nothing changed.
func TestPolledEndpointsDoNotGrowStale(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), living("a", 30*time.Second, 0), serve("b", 1))
		const path = "/v3/discovery:endpoints"
		clients := map[string]string{"one": "", "two": ""} // on one host, with one node id
		for range 4 {
			for name, version := range clients {
				got := w.poll(path, pollBody(version, "n", "a"), "Prefer", "wait=60")
				if got.status != http.StatusOK || len(got.All) != 1 || got.Version == version {
					t.Fatalf("%s, after %s: %d %s", name, version, got.status, got.body)
				}
				clients[name] = got.Version
			}
			if clients["one"] != clients["two"] {
				t.Fatalf("versions differ: %v", clients)
			}
			start := time.Now()
			if got := w.poll(path, pollBody(clients["one"], "n", "a")); got.status != http.StatusNotModified {
				t.Fatalf("in the same third: %d %s", got.status, got.body)
			}
			got := w.poll(path, pollBody(clients["one"], "n", "a"), "Prefer", "wait=60")
			if waited := time.Since(start); got.status != http.StatusOK || waited > 10*time.Second {
				t.Fatalf("after %v: %d %s", waited, got.status, got.body)
			}
		}
		for _, unaffected := range []string{path + "?b", "/v3/discovery:clusters?a", "/v2/discovery:endpoints?a old"} {
			path, name, _ := strings.Cut(unaffected, "?")
			name, id, _ := strings.Cut(name, " ")
			first := w.poll(path, pollBody("", id, name))
			if got := w.poll(path, pollBody(first.Version, id, name), "Prefer", "wait=60"); got.status != http.StatusNotModified {
				t.Errorf("%s: %d %s", unaffected, got.status, got.body)
			}
		}
	})
}

// A shorter life counts at once, not after a third of what it
// was before.
func TestAShorterLifeIsHeeded(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1), living("a", 24*time.Hour, 0))
		c := w.ads(at("us-east/b")).request(edsURL, "a").equals("eds v1: a@1").ack(edsURL)
		<-time.After(2 * time.Second) // seen
		w.publish(serve("a", 2), living("a", 30*time.Second, 0))
		c.equals("eds v2: a@2").ack(edsURL)
		<-time.After(time.Second) // seen
		for range 3 {
			<-time.After(10 * time.Second)
			c.equals("eds v2: a@2").ack(edsURL)
		}
	})
}

// One client may poll in two API versions of one URL.
func TestPollsOfOneClientInTwoAPIVersions(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		for _, only2017 := range []bool{true, false, true} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v2/discovery:endpoints", strings.NewReader(pollBody("", "n", "a")))
			answer := httptest.NewRecorder()
			xds.Handler(w.server, only2017).ServeHTTP(answer, r)
			if of2017 := !strings.Contains(answer.Body.String(), "control_plane"); answer.Code != http.StatusOK || of2017 != only2017 {
				t.Errorf("for 2017 alone %v: %d %s", only2017, answer.Code, answer.Body)
			}
		}
	})
}

// What clients that poll make the server remember is bounded as a whole, and
// free again when they are forgotten.
func TestMemoryOfPollsIsBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		const path, bound = "/v3/discovery:endpoints", 100
		fill := func(round int) (taken int) {
			for i := range bound {
				names := make([]string, 100)
				for j := range names {
					names[j] = fmt.Sprintf("none-%d-%d-%d", round, i, j)
				}
				switch got := w.poll(path, pollBody("x", fmt.Sprint("n", i), names...)); got.status {
				case http.StatusOK:
					taken++
				case http.StatusTooManyRequests:
				default:
					t.Fatalf("%d %s", got.status, got.body)
				}
			}
			return taken
		}
		first := fill(1)
		if first < 5 || first > 20 {
			t.Errorf("%d of %d clients with 100 names each were taken into 2 MiB", first, bound)
		}
		if got := w.poll(path, pollBody("", "small", "a")); got.status != http.StatusOK {
			t.Errorf("a small one: %d %s", got.status, got.body)
		}
		<-time.After(6 * time.Minute)
		if second := fill(2); second != first {
			t.Errorf("%d clients at first, %d later", first, second)
		}
	}, func(o *xds.Options) { o.PollMemory = 2 << 20 })
}

// Clients that poll, and leave nothing open, can't take all localities from
// those with streams.
func TestPollsLeaveLocalitiesForStreams(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		const path = "/v3/discovery:endpoints"
		for i := range 10 {
			body := strings.Replace(pollBody("", "n", "a"), `"zone":"b"`, fmt.Sprintf(`"zone":"z%d"`, i), 1)
			want := http.StatusOK
			if i >= 2 {
				want = http.StatusTooManyRequests
			}
			if got := w.poll(path, body); got.status != want {
				t.Errorf("locality %d: %d %s", i, got.status, got.body)
			}
		}
		w.ads(at("eu-west/a")).request(edsURL, "a").equals("eds v1: a@1")
		w.ads(at("eu-west/b")).request(edsURL, "a").equals("eds v1: a@1")
		<-time.After(6 * time.Minute)
		if got := w.poll(path, pollBody("", "n", "a")); got.status != http.StatusOK {
			t.Errorf("later: %d %s", got.status, got.body)
		}
		w.server.Stop()
		if got := w.poll(path, pollBody("", "late", "a")); got.status != http.StatusServiceUnavailable {
			t.Errorf("while it stops: %d %s", got.status, got.body)
		}
	}, func(o *xds.Options) { o.MaxLocalities = 4 })
}

// Old clients say in JSON, too, what they are.
func TestPollsTellTheBuildVersion(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		got := w.poll("/v2/discovery:endpoints", `{"node": {"id": "n", "build_version": "gRPC Go 1.50.1", "from_the_future": {}}, "resource_names": ["a"]}`)
		if c := w.server.Clients(); got.status != http.StatusOK || len(c) != 1 || c[0].Agent != "gRPC Go 1.50.1" {
			t.Errorf("%d %s, %+v", got.status, got.body, c)
		}
	})
}

// One poll can't make the server write one service out under thousands of names.
func TestAnswersToPollsAreBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish(serve("a", 1))
		const path = "/v3/discovery:endpoints"
		names := make([]string, 5000)
		for i := range names {
			names[i] = fmt.Sprintf("xdstp://x%d/envoy.config.endpoint.v3.ClusterLoadAssignment/a", i)
		}
		got := w.poll(path, pollBody("", "n", names...))
		if got.status != http.StatusTooManyRequests || !strings.Contains(got.body, "too many resources in one answer: they take more than 65536 bytes; ask for fewer names at once") {
			t.Errorf("%d %.200s", got.status, got.body)
		}
		if got := w.poll(path, pollBody("", "n", names[:100]...)); got.status != http.StatusOK || len(got.All) != 100 {
			t.Errorf("a hundred: %d %.200s", got.status, got.body)
		}
	}, func(o *xds.Options) { o.PollSize = 64 << 10 })
}
