package xds_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-xds/isobar/internal/xds"
)

// pollQuietly polls and drops the answer.
func (w *world) pollQuietly(body string) int {
	r := httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, "/v3/discovery:endpoints", strings.NewReader(body))
	answer := httptest.NewRecorder()
	xds.Handler(w.server, false).ServeHTTP(answer, r)
	return answer.Code
}

// TestMemoryOfNamesOfNoService asserts that names which no service has take little, and at most half of what
// the server counts, whatever version clients show that poll for them. A publication does not grow with them.
func TestMemoryOfNamesOfNoService(t *testing.T) {
	const clients, names = 5, 10_000
	for version, most := range map[string]int64{
		"":          250,
		"elsewhere": 1200, // the client may have all of them from another server: each gets an empty assignment
	} {
		t.Run(version, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.publish(serve("a", 1))
				w.pollQuietly(pollBody(version, "first", "a"))
				before := heapInUse()
				for i := range clients {
					if code := w.pollQuietly(pollBody(version, fmt.Sprint("n", i), numbered(fmt.Sprint("x", i), names)...)); code != http.StatusOK {
						t.Fatal(code)
					}
				}
				took := heapInUse() - before
				counted, _, _, _ := w.server.PollMemory()
				if 2*took > counted || took > most*clients*names {
					t.Errorf("a name takes %d bytes, of which %d count; want at most %d", took/clients/names, counted/clients/names, most)
				}
				if version == "" {
					publishedCheaply(w)
				}
				<-time.After(6 * time.Minute)
				if counted, _, _, _ := w.server.PollMemory(); counted != 0 {
					t.Errorf("%d bytes count when all clients are forgotten", counted)
				}
			})
		})
	}
}

func publishedCheaply(w *world) {
	w.t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w.publish(serve("a", 2))
	synctest.Wait()
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<18 {
		w.t.Errorf("a publication takes %d bytes", took)
	}
}
