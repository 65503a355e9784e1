package health_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// TestVotes shows three checkers (in eu/a, eu/b, eu/c unless said otherwise)
// who had agreed on healthy, and what their new votes make of that.
func TestVotes(t *testing.T) {
	const (
		silent   = isobar.Unknown
		up       = isobar.Healthy
		down     = isobar.Unhealthy
		timeout  = isobar.Timeout
		degraded = isobar.Degraded
		draining = isobar.Draining
	)
	type votes [3]isobar.HealthStatus
	here := [3]isobar.Locality{zoneA, zoneB, zoneC}
	together := [3]isobar.Locality{zoneA, zoneA, zoneB}
	for _, row := range []struct {
		name   string
		zones  [3]isobar.Locality
		votes  votes
		want   isobar.HealthStatus
		frozen bool
		why    string
	}{
		{"all up", here, votes{up, up, up}, up, false, "3 of 3 fresh votes in 3 zones agree"},
		{"one down", here, votes{up, up, down}, up, false, "2 of 3 fresh votes in 2 zones agree"},
		{"two down", here, votes{up, down, down}, down, false, "2 of 3 fresh votes in 2 zones agree"},
		{"all down", here, votes{down, down, down}, down, false, ""},
		{"two down in one zone", together, votes{down, down, up}, up, true, "frozen: fresh votes that agree come from 1 zones, 2 are needed"},
		{"two down in two zones", together, votes{up, down, down}, down, false, ""},
		{"one silent, others down", here, votes{silent, down, down}, down, false, "2 of 2"},
		{"one silent, others divided", here, votes{silent, up, down}, up, true, "frozen: no majority among 2 fresh votes"},
		{"two silent, one down", here, votes{silent, silent, down}, up, true, "frozen: 1 fresh vote, 2 must agree"},
		{"silence", here, votes{silent, silent, silent}, up, true, "frozen: no fresh votes"},
		{"timeouts", here, votes{up, timeout, timeout}, timeout, false, ""},
		{"a timeout is down", here, votes{up, timeout, down}, down, false, ""},
		{"mostly timeouts", here, votes{timeout, timeout, down}, timeout, false, ""},
		{"a checker that says draining", here, votes{draining, draining, up}, draining, false, ""},
		{"degraded", here, votes{degraded, degraded, up}, degraded, false, ""},
		{"one degraded", here, votes{degraded, up, up}, up, false, ""},
		{"all different", here, votes{degraded, up, down}, up, true, "frozen: no majority"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var checkers []health.Checker
			for i, id := range []string{"x", "y", "z"} {
				checkers = append(checkers, checker(id, row.zones[i]))
			}
			w := newWorld(t, topology(service("web", 1, zoneA)), checkers)
			w.run(3 * interval)
			if got := w.status("web", first); got != up {
				t.Fatalf("at first %s, want healthy", got)
			}
			w.says = func(id string, _ health.Key) isobar.HealthStatus { return row.votes[id[0]-'x'] }
			w.run(5 * interval)
			v := w.verdict("web", first)
			if v.Status != row.want || w.status("web", first) != row.want || v.Frozen != row.frozen {
				t.Errorf("%s, frozen %v (%s); want %s, %v", v.Status, v.Frozen, v.Why, row.want, row.frozen)
			}
			if !strings.Contains(v.Why, row.why) {
				t.Errorf("why %q, want %q", v.Why, row.why)
			}
		})
	}
}

func TestSettingsOfTheService(t *testing.T) {
	for _, row := range []struct {
		name     string
		asks     isobar.Checkers
		checkers []health.Checker
		want     isobar.HealthStatus
	}{
		{"one zone is too few", isobar.Checkers{}, checkersIn(3, zoneA), isobar.Unknown},
		{"one zone accepted", isobar.Checkers{Count: 3, Domains: 1}, checkersIn(3, zoneA), isobar.Healthy},
		{"one checker is too few", isobar.Checkers{Count: 3, Domains: 1}, checkersIn(1, zoneA), isobar.Unknown},
		{"one checker accepted", isobar.Checkers{Count: 1, Domains: 1}, checkersIn(1, zoneA), isobar.Healthy},
		{"three zones wanted", isobar.Checkers{Count: 3, Domains: 3}, checkersIn(2, zoneA, zoneB), isobar.Unknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := service("web", 1, zoneA)
			s.Checkers = row.asks
			w := newWorld(t, topology(s), row.checkers)
			w.run(30 * time.Second)
			if v := w.verdict("web", first); v.Status != row.want {
				t.Errorf("%s (%s), want %s", v.Status, v.Why, row.want)
			}
		})
	}
}

func TestVerdictsAge(t *testing.T) {
	w := one(t)
	w.run(10 * time.Second)
	heard := w.now
	for i := range w.checkers {
		w.silent[w.checkers[i].ID] = true
	}
	w.run(10 * time.Minute)
	v := w.verdict("web", first)
	if v.Status != isobar.Healthy || !v.Frozen || v.Since.After(heard) {
		t.Errorf("%+v, want the verdict of before", v)
	}
	// Votes are fresh for three report intervals, so the verdict was confirmed
	// until then.
	if age := w.now.Sub(v.Confirmed); age < 10*time.Minute-4*interval {
		t.Errorf("confirmed %s ago, want about 10 min", age)
	}
	for _, vote := range v.Votes {
		if vote.Fresh || vote.Counts || vote.Age(w.now) != 10*time.Minute || vote.Status != isobar.Healthy {
			t.Errorf("vote %+v, want one of 10 min ago", vote)
		}
	}
	if s := w.book.Summary("web"); s.Frozen != 3 || s.Healthy != 3 || s.StaleVotes != 9 || !s.OldestConfirmed.Equal(v.Confirmed) {
		t.Errorf("summary %+v", s)
	}
}

func TestPathProblems(t *testing.T) {
	w := one(t)
	w.run(10 * time.Second)
	w.says = func(id string, k health.Key) isobar.HealthStatus {
		if id == "eu/c-0" && k.Address == first {
			return isobar.Timeout
		}
		return isobar.Healthy
	}
	w.run(8 * time.Second)
	if v := w.verdict("web", first); v.Divided {
		t.Errorf("divided after 8 s: checkers need that long to see one failure")
	}
	w.run(20 * time.Second)
	v := w.verdict("web", first)
	if v.Status != isobar.Healthy || !v.Divided || len(v.Zones) != 1 || v.Zones[0] != zoneC || !strings.Contains(v.Why, "a path problem: down as seen from eu/c only") {
		t.Errorf("%+v, want a path problem of eu/c", v)
	}
	if v := w.verdict("web", second); v.Divided {
		t.Error("another endpoint is divided")
	}
}

func TestReportsThatDoNotCount(t *testing.T) {
	w := one(t)
	w.run(4 * time.Second)
	if w.ignored != 0 {
		t.Fatalf("%d good reports were ignored", w.ignored)
	}
	good := health.Report{Checker: "eu/a-0", Service: "web", Locality: zoneA, Address: first, Status: isobar.Healthy, Arrived: w.now}
	for name, change := range map[string]func(*health.Report){
		"checker":  func(r *health.Report) { r.Checker = "stranger" },
		"service":  func(r *health.Report) { r.Service = "other" },
		"locality": func(r *health.Report) { r.Locality = zoneB },
		"address":  func(r *health.Report) { r.Address = "10.9.9.9:80" },
		"status":   func(r *health.Report) { r.Status = 99 },
		"stream":   func(r *health.Report) { r.Arrived = start.Add(-time.Second) },
	} {
		bad := good
		change(&bad)
		o := health.Observation{Now: w.now, Reports: []health.Report{good, bad, good}, Checkers: w.checkers, Placement: w.placement, Topology: w.topology}
		if out := w.book.Observe(o); out.Ignored != 1 || len(out.Changed) != 0 {
			t.Errorf("%s: %+v, want one report ignored", name, out)
		}
	}
	late := good
	late.Status, late.Arrived = isobar.Unhealthy, w.now.Add(-time.Second)
	w.book.Observe(health.Observation{Now: w.now, Reports: []health.Report{late}, Checkers: w.checkers, Placement: w.placement, Topology: w.topology})
	if got := w.verdict("web", first).Votes[0].Status; got != isobar.Healthy {
		t.Errorf("a report that is older than the last one was taken: %s", got)
	}
}

func TestWhatIsGoneIsForgotten(t *testing.T) {
	w := newWorld(t, topology(service("web", 1, zoneA), service("api", 1, zoneA)), checkersIn(1, zoneA, zoneB, zoneC))
	w.run(4 * time.Second)
	before := w.book.Verdicts()
	w.topology = topology(service("api", 1, zoneA))
	if changed := w.step(); !reflect.DeepEqual(changed, []string{"web"}) {
		t.Errorf("changed %v, want web", changed)
	}
	if _, found := w.book.Verdicts().Status("web", first); found || w.book.Explain("web") != nil || w.book.Summary("web") != (health.Summary{}) {
		t.Error("verdicts on a service that is gone")
	}
	if h, _ := before.Status("web", first); h != isobar.Healthy {
		t.Error("verdicts of before changed")
	}
	if got := w.book.Services(); !reflect.DeepEqual(got, []string{"api"}) {
		t.Errorf("services %v", got)
	}
	w.topology = nil
	w.book.Observe(health.Observation{Now: w.now})
	if len(w.book.Services()) != 0 {
		t.Error("services without a topology")
	}
}
