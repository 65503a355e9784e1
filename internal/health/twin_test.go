package health_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// twin keeps every report ever made and works each verdict out from the
// beginning, as the rules say it.
type twin struct {
	log    []health.Report
	status map[health.Key]isobar.HealthStatus
}

// last finds the newest report of a checker on its present stream, whether it
// has said up on it, and when it first spoke.
func (w *twin) last(c health.Checker, k health.Key) (last health.Report, up bool, began time.Time) {
	for _, r := range w.log {
		if r.Checker != c.ID || r.Service != k.Service || r.Address != k.Address || r.Arrived.Before(c.Since) {
			continue
		}
		if began.IsZero() {
			began = r.Arrived
		}
		up = up || r.Status == isobar.Healthy || r.Status == isobar.Degraded
		last = r
	}
	return last, up, began
}

func (w *twin) judge(now time.Time, k health.Key, checkers []health.Checker, asks isobar.Checkers) {
	fresh := 0
	votes := map[string]int{}
	in := map[string]map[isobar.Locality]bool{}
	for _, c := range checkers {
		r, up, began := w.last(c, k)
		if began.IsZero() || now.Sub(r.Arrived) > 3*interval || r.Status == isobar.Unknown {
			continue
		}
		fresh++
		kind := "down"
		switch r.Status {
		case isobar.Healthy, isobar.Degraded:
			kind = r.Status.String()
		default:
			if !up && now.Sub(began) < 18*time.Second {
				continue
			}
		}
		votes[kind]++
		if in[kind] == nil {
			in[kind] = map[isobar.Locality]bool{}
		}
		in[kind][c.Zone()] = true
	}
	for kind, n := range votes {
		if 2*n <= fresh || n < 2 || len(in[kind]) < asks.Domains {
			continue
		}
		before := w.status[k]
		isDown := before != isobar.Unknown && before != isobar.Healthy && before != isobar.Degraded
		switch {
		case kind == "healthy":
			w.status[k] = isobar.Healthy
		case kind == "degraded":
			w.status[k] = isobar.Degraded
		case !isDown:
			w.status[k] = isobar.Unhealthy // or another word for down
		}
	}
}

func TestVerdictsMatchTheDumbTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := service("web", 2, zoneA)
		s.Checkers = isobar.Checkers{Count: rapid.IntRange(2, 4).Draw(t, "count"), Domains: rapid.IntRange(1, 2).Draw(t, "domains")}
		var checkers []health.Checker
		for i := range rapid.IntRange(1, 5).Draw(t, "checkers") {
			checkers = append(checkers, checker(string(rune('a'+i)), rapid.SampledFrom(zones[:3]).Draw(t, "zone")))
		}
		w := newWorld(t, topology(s), checkers)
		w.place()
		dumb := &twin{status: map[health.Key]isobar.HealthStatus{}}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 7).Draw(t, "seconds")) * time.Second)
			for i := range w.checkers {
				if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
					w.checkers[i].Since = w.now
				}
			}
			w.says = func(string, health.Key) isobar.HealthStatus {
				return isobar.HealthStatus(rapid.SampledFrom([]uint8{0, 1, 1, 1, 2, 2, 2, 3, 4, 5}).Draw(t, "status"))
			}
			reports := w.reports()
			dumb.log = append(dumb.log, reports...)
			w.table.Observe(health.Observation{Now: w.now, Reports: reports, Checkers: w.checkers, Placement: w.placement, Topology: w.topology})
			for _, address := range []string{first, "10.0.0.1:80"} {
				k := health.Key{Service: "web", Address: address}
				var mine []health.Checker
				for _, c := range w.checkers {
					for _, id := range designated(&w.placement, k) {
						if id == c.ID {
							mine = append(mine, c)
						}
					}
				}
				dumb.judge(w.now, k, mine, s.Checkers)
				got, want := w.verdict("web", address).Status, dumb.status[k]
				if got != want && (!isDown(got) || !isDown(want)) {
					t.Fatalf("%v: %s, the twin says %s: %+v", k, got, want, w.verdict("web", address))
				}
			}
		}
	})
}

func isDown(h isobar.HealthStatus) bool {
	return h == isobar.Unhealthy || h == isobar.Timeout || h == isobar.Draining
}
