package health_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// many has a service with 10 endpoints in each of two zones.
func many(tb testing.TB, more ...isobar.Service) *world {
	tb.Helper()
	w := newWorld(tb, topology(append(more, service("web", 10, zoneA, zoneB))...), checkersIn(1, zoneA, zoneB, zoneC))
	w.run(10 * time.Second)
	if n := w.count("web", isobar.Healthy); n != 20 {
		tb.Fatalf("%d healthy, want all 20", n)
	}
	return w
}

func downWhere(dead func(k health.Key) bool) func(string, health.Key) isobar.HealthStatus {
	return func(_ string, k health.Key) isobar.HealthStatus {
		if dead(k) {
			return isobar.Unhealthy
		}
		return isobar.Healthy
	}
}

func TestASlowMassFlipIsHeldFromTheMiddle(t *testing.T) {
	w := many(t)
	dead := 0
	w.says = downWhere(func(k health.Key) bool {
		return k.Address < "10.0.0."+string(rune('0'+min(dead, 9))) || (dead > 9 && k.Address < "10.1.0."+string(rune('0'+dead-9)))
	})
	for range 9 {
		dead += 4
		dead = min(dead, 18)
		w.step()
	}
	w.run(time.Minute)
	n := w.count("web", isobar.Unhealthy)
	if held := w.table.Summary("web").Held; n > 10 || n == 0 || n+held != 19 {
		t.Errorf("%d down and %d held, want at most half down and the rest of 19 held", n, held)
	}
}

// What takes endpoints one by one, over minutes, is held from the middle as well. Clients lose
// degraded endpoints like those that are down.
func TestAMassFlipStepByStepIsHeld(t *testing.T) {
	for _, as := range []isobar.HealthStatus{isobar.Unhealthy, isobar.Timeout, isobar.Degraded} {
		for _, pause := range []time.Duration{2 * time.Second, 10 * time.Second, 24 * time.Second} {
			w := many(t)
			lost := map[string]bool{}
			w.says = func(_ string, k health.Key) isobar.HealthStatus {
				if lost[k.Address] {
					return as
				}
				return isobar.Healthy
			}
			for i := range 18 {
				lost[fmt.Sprintf("10.%d.0.%d:80", i%2, i/2)] = true
				w.run(pause)
				if n := w.count("web", as); n > 10 && time.Duration(i)*pause < 5*time.Minute {
					t.Fatalf("one each %v: %d of 20 are %s after %v", pause, n, as, time.Duration(i)*pause)
				}
			}
		}
	}
}

// An endpoint that is degraded and then goes down counts once, and to come back from down to
// degraded is no loss.
func TestDegradedEndpointsThatGoDownCountOnce(t *testing.T) {
	w := many(t)
	as := isobar.Degraded
	w.says = func(_ string, k health.Key) isobar.HealthStatus {
		if strings.HasPrefix(k.Address, "10.1.0.") && k.Address != "10.1.0.9:80" {
			return as
		}
		return isobar.Healthy
	}
	for _, as = range []isobar.HealthStatus{isobar.Degraded, isobar.Unhealthy, isobar.Degraded} {
		for range 10 {
			w.step()
			if held := w.table.Summary("web").Held; held != 0 {
				t.Fatalf("%d of 9 that are %s are held, want none: 9 of 20 are no mass", held, as)
			}
		}
		if n := w.count("web", as); n != 9 {
			t.Errorf("%d of 20 are %s, want 9", n, as)
		}
	}
}

func TestEndpointsThatNeverCameUpAreNoMass(t *testing.T) {
	for name, between := range map[string]func(*monitorWorld){
		"at once":         func(*monitorWorld) {},
		"after a restart": func(o *monitorWorld) { o.restart(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			o := atRest(t, 2, 1, zoneA, zoneB, zoneC)
			o.add(0, fresh(7)...)
			o.dead(fresh(7)...)
			o.run(26 * time.Second)
			between(o)
			o.dead(append(fresh(7), second)...)
			o.run(22 * time.Second) // a restart makes checkers begin again
			if v := o.verdict(second); v.Held || v.Status != isobar.Unhealthy {
				t.Errorf("%+v, want unhealthy: one of six failed", v)
			}
		})
	}
}

// Endpoints that never came up don't keep checkers from being believed.
func TestEndpointsThatNeverCameUpAreNoEvidence(t *testing.T) {
	dead := service("api", 40, zoneC)
	w := newWorld(t, topology(dead, service("web", 10, zoneA), service("db", 3, zoneC)), checkersIn(1, zoneA, zoneB, zoneC))
	w.says = downWhere(func(k health.Key) bool { return k.Service == "api" })
	w.run(40 * time.Second)
	w.says = downWhere(func(k health.Key) bool { return k.Service != "db" })
	w.run(4 * interval)
	if n := w.count("web", isobar.Unhealthy); n != 10 {
		t.Errorf("%d down, want all 10: db is up", n)
	}
}

// The loop releases at each tick what load reports prove, for as long as they
// do.
func TestReleasesAreKeptOnce(t *testing.T) {
	w := many(t, service("api", 3, zoneC))
	w.all(isobar.Unhealthy)
	w.run(20 * interval)
	live := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := live()
	for range 100_000 {
		if !w.table.Release("web", zoneB, zoneB) {
			t.Fatal("not released")
		}
	}
	if after := live(); after > before+1<<20 {
		t.Errorf("%d bytes more after releasing the same over and over", after-before)
	}
	w.step()
	if n := w.count("web", isobar.Unhealthy); n != 10 {
		t.Errorf("%d down, want the 10 in eu/b", n)
	}
}

// Checkers see everything elsewhere up and vote a service down, though the requests of its
// clients succeed: it is held, at once or one endpoint after the other, until clients fail.
func TestMassFlipThatClientsContradict(t *testing.T) {
	everywhere := &health.ClientReports{Served: []health.Served{{"web", zoneA}, {"web", zoneB}, {"gone", zoneC}}}
	for name, pause := range map[string]time.Duration{"at once": 0, "one each 10 s": 10 * time.Second, "one each 40 s": 40 * time.Second, "one each 2 min": 2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			w := many(t, service("api", 60, zoneC))
			w.clients = everywhere
			w.step()
			w.clients = nil // load reports come less often than those of checkers
			w.checkers = append(w.checkers, checkersIn(2, zoneA, zoneB, zoneC)...)
			w.checkers = slices.CompactFunc(slices.SortedFunc(slices.Values(w.checkers), func(a, b health.Checker) int { return strings.Compare(a.ID, b.ID) }),
				func(a, b health.Checker) bool { return a.ID == b.ID })
			begun := w.now
			w.says = downWhere(func(k health.Key) bool {
				var zone, i int
				_, _ = fmt.Sscanf(k.Address, "10.%d.0.%d:80", &zone, &i)
				return k.Service == "web" && time.Duration(2*i+zone)*pause <= w.now.Sub(begun)
			})
			w.run(time.Minute + 20*pause)
			if n := w.count("web", isobar.Unhealthy); n > 10 {
				t.Errorf("%d of 20 are down, want at most half", n)
			}
			alarms := w.table.Alarms()
			if len(alarms) != 1 || !strings.Contains(alarms[0].Why, "the requests of clients succeed in eu/a, eu/b") {
				t.Fatalf("alarms %+v", alarms)
			}
			// Clients no longer get through in one of the zones.
			w.clients = &health.ClientReports{Served: []health.Served{{"web", zoneB}}}
			w.run(10 * time.Second)
			a, b := 0, 0
			for _, v := range w.table.Explain("web") {
				switch {
				case v.Status != isobar.Unhealthy:
				case v.Locality == zoneA:
					a++
				default:
					b++
				}
			}
			if a != 10 || b > 5 {
				t.Errorf("%d of eu/a and %d of eu/b are down, want all of the zone where clients fail and half of the other at most", a, b)
			}
			// An operator knows better.
			w.table.Release("web")
			w.step()
			if n := w.count("web", isobar.Unhealthy); n != 20 {
				t.Errorf("%d down after the release, want all", n)
			}
		})
	}
}

// What takes endpoints one by one is held from the middle also where checkers open their
// streams again, or the server restarts, in between: what they say then does not count for a
// while, but it makes nobody's sight clear. A clock that goes back changes nothing.
func TestMassFlipStepByStepWithNewStreams(t *testing.T) {
	for name, between := range map[string]func(*monitorWorld){
		"new streams": func(o *monitorWorld) {
			for i := range o.connected {
				o.connected[i].Since = o.now
			}
		},
		"restarts": func(o *monitorWorld) { o.restart(nil) },
		"restarts with a clock that goes back": func(o *monitorWorld) {
			o.now = o.now.Add(-time.Hour)
			o.restart(nil)
		},
	} {
		for _, every := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, every %d", name, every), func(t *testing.T) {
				o := atRest(t, 10, 2, zoneA, zoneB)
				var dead []string
				for i := range 18 {
					dead = append(dead, fmt.Sprintf("10.%d.0.%d:80", i%2, i/2))
					o.dead(dead...)
					o.run(10 * time.Second)
					if i%every == 0 {
						between(o)
						o.run(6 * time.Second)
					}
					if s := o.monitor.VerdictTable().Summary("web"); s.Down > 10 {
						t.Fatalf("%d of 20 are down after step %d, want at most half", s.Down, i)
					}
				}
			})
		}
	}
}

// TestMassFlipZoneByZoneThatClientsContradict asserts that checkers which vote down one zone
// after the other take at most half of a service whose requests succeed: a zone without
// endpoints in use has no requests, and so nothing that contradicts its checkers any more.
func TestMassFlipZoneByZoneThatClientsContradict(t *testing.T) {
	for name, pause := range map[string]time.Duration{
		"one each 10 s": 10 * time.Second, "one each 1 min": time.Minute, "a zone each 6 min": 6 * time.Minute, "one each 1 min, restarts": time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			restarts := strings.Contains(name, "restarts")
			zones := []isobar.Locality{zoneA, zoneB, zoneC}
			w := newWorld(t, topology(service("api", 60, zoneF), service("web", 4, zones...)), checkersIn(2, zones...))
			w.run(10 * time.Second)
			begun := w.now
			w.says = downWhere(func(k health.Key) bool {
				var zone, i int
				_, _ = fmt.Sscanf(k.Address, "10.%d.0.%d:80", &zone, &i)
				at := time.Duration(4*zone+i) * pause
				if pause > 5*time.Minute {
					at = time.Duration(zone) * pause
				}
				return k.Service == "web" && at <= w.now.Sub(begun)
			})
			for end := w.now.Add(13 * pause); w.now.Before(end) || w.now.Sub(begun) < 20*time.Minute; {
				if restarts && w.now.Sub(begun)%(90*time.Second) == 0 {
					w.table = health.NewVerdictTable(health.Settings{ReportInterval: interval}, w.table.Save(), w.now)
				}
				w.clients = &health.ClientReports{Served: used(w, zones)}
				w.step()
				if n := w.count("web", isobar.Unhealthy); n > 6 {
					t.Fatalf("%d of 12 are down after %v, want at most half", n, w.now.Sub(begun))
				}
			}
		})
	}
}

// TestMassFlipWithRecoveriesThatClientsContradict asserts that checkers gain nothing from a short recovery
// of the endpoints that they took: clients have sent nothing there yet when these go down again, so no
// report contradicts the second verdict.
func TestMassFlipWithRecoveriesThatClientsContradict(t *testing.T) {
	for _, pulse := range []time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("recoveries of %v, restarts: %v", pulse, restarts), func(t *testing.T) {
				zones := []isobar.Locality{zoneA, zoneB, zoneC}
				w := newWorld(t, topology(service("api", 60, zoneF), service("web", 4, zones...)), checkersIn(2, zones...))
				w.clients = &health.ClientReports{Served: used(w, zones)}
				w.run(10 * time.Second)
				const each = 7 * time.Minute
				begun := w.now
				w.says = downWhere(func(k health.Key) bool {
					var zone, i int
					_, _ = fmt.Sscanf(k.Address, "10.%d.0.%d:80", &zone, &i)
					past := w.now.Sub(begun) - time.Duration(zone)*each // since the zone was taken
					return k.Service == "web" && past >= 0 && (past < time.Minute || past >= time.Minute+pulse)
				})
				for w.now.Sub(begun) < 4*each {
					within := w.now.Sub(begun) % each
					if within < time.Minute || within > 2*time.Minute { // in between no load report comes in time
						w.clients = &health.ClientReports{Served: used(w, zones)}
					}
					w.step()
					if restarts && within > time.Minute && within <= time.Minute+pulse {
						w.table = health.NewVerdictTable(health.Settings{ReportInterval: interval}, w.table.Save(), w.now)
					}
					if n := w.count("web", isobar.Unhealthy); n > 6 {
						t.Fatalf("%d of 12 are down after %v, want at most half", n, w.now.Sub(begun))
					}
				}
			})
		}
	}
}

// used lists the zones in which web has an endpoint that is not down: its requests succeed there.
func used(w *world, zones []isobar.Locality) (out []health.Served) {
	for _, at := range zones {
		if slices.ContainsFunc(w.table.Explain("web"), func(v health.Verdict) bool { return v.Locality == at && v.Status != isobar.Unhealthy }) {
			out = append(out, health.Served{Service: "web", Locality: at})
		}
	}
	return out
}

// A zone dies, and the reports of clients show it a moment after checkers do; then nobody sends there any
// more. Minutes later that is no reason to doubt that another zone dies, too.
func TestAZoneThatClientsLostTooIsNoMassFlipLater(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lost  bool // clients report failures after the verdicts
		late  bool // they do so minutes later only
		lag   time.Duration
		wants int // endpoints down in the end
	}{
		{"clients lost it, too", true, false, 5 * time.Second, 8},
		{"they report once a minute", true, false, 50 * time.Second, 8},
		{"requests succeeded", false, false, 5 * time.Second, 4},
		{"requests failed later", false, true, 5 * time.Second, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			zones := []isobar.Locality{zoneA, zoneB, zoneC}
			w := newWorld(t, topology(service("web", 4, zones...)), checkersIn(2, zones...))
			w.clients = &health.ClientReports{Served: []health.Served{{"web", zoneA}, {"web", zoneB}, {"web", zoneC}}}
			w.run(time.Minute)
			gone := []string{"10.0."}
			w.says = downWhere(func(k health.Key) bool {
				return slices.ContainsFunc(gone, func(prefix string) bool { return strings.HasPrefix(k.Address, prefix) })
			})
			w.run(tc.lag)
			if n := w.count("web", isobar.Unhealthy); n != 4 {
				t.Fatalf("%d endpoints are down after the first zone died, want 4", n)
			}
			w.clients = &health.ClientReports{Served: []health.Served{{"web", zoneB}, {"web", zoneC}}}
			if tc.lost {
				w.clients.Failed = []health.Served{{"web", zoneA}}
			}
			w.run(5 * time.Second)
			w.clients = &health.ClientReports{Served: []health.Served{{"web", zoneB}, {"web", zoneC}}}
			w.run(3 * time.Minute)
			if tc.late {
				w.clients = &health.ClientReports{Served: []health.Served{{"web", zoneB}, {"web", zoneC}}, Failed: []health.Served{{"web", zoneA}}}
			}
			w.run(3 * time.Minute)
			gone = append(gone, "10.1.")
			w.clients = &health.ClientReports{Served: []health.Served{{"web", zoneC}}}
			w.run(2 * time.Minute)
			if n := w.count("web", isobar.Unhealthy); n != tc.wants {
				t.Errorf("%d endpoints are down after the second zone died, want %d", n, tc.wants)
			}
		})
	}
}

// TestForgedVotesAfterARestart: votes arrive within seconds after a restart, and load reports later.
// Until then the requests that succeeded before the restart speak for the endpoints, but not for ever.
func TestForgedVotesAfterARestart(t *testing.T) {
	zones := []isobar.Locality{zoneA, zoneB, zoneC}
	everywhere := []health.Served{{"web", zoneA}, {"web", zoneB}, {"web", zoneC}}
	for _, tc := range []struct {
		name  string
		wait  time.Duration // without a load report
		heard *health.ClientReports
		all   bool // clients lose all endpoints in the end
	}{
		{"load reports come", 15 * time.Second, &health.ClientReports{Served: everywhere}, false},
		{"load reports tell of failures", 15 * time.Second, &health.ClientReports{Failed: everywhere}, true},
		{"no load report comes", 2 * time.Minute, &health.ClientReports{}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newMonitorWorld(t, topology(service("other", 9, zones...), service("web", 4, zones...)), checkersIn(2, zones...))
			o.clients = &health.ClientReports{Served: everywhere}
			o.run(time.Minute)
			o.restart(nil)
			o.clients = &health.ClientReports{}
			o.run(2 * time.Second)
			o.says = func(_ string, k health.Key) isobar.HealthStatus {
				if k.Service == "web" {
					return isobar.Unhealthy
				}
				return isobar.Healthy
			}
			o.run(tc.wait)
			if n := o.monitor.VerdictTable().Summary("web").Down; tc.wait < time.Minute && n > 6 {
				t.Errorf("%d of 12 are down before any load report", n)
			}
			o.clients = tc.heard
			o.run(time.Minute)
			if n := o.monitor.VerdictTable().Summary("web").Down; (n == 12) != tc.all || n > 6 && !tc.all {
				t.Errorf("%d of 12 are down in the end, want all: %v", n, tc.all)
			}
		})
	}
}
