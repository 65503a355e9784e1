package health_test

import (
	"encoding/json"
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

func TestUnhealthyFromTheStartTakesTime(t *testing.T) {
	w := newWorld(t, topology(service("web", 1, zoneA)), checkersIn(1, zoneA, zoneB, zoneC))
	w.all(isobar.Unhealthy)
	w.step()
	began := w.now
	for w.status("web", first) == isobar.Unknown && w.now.Sub(began) < time.Minute {
		w.step()
	}
	// 3 x (5 s + 1 s)
	if took := w.now.Sub(began); took < 18*time.Second || took > 18*time.Second+interval {
		t.Errorf("down after %s, want 18 s after the first report", took)
	}
	w.all(isobar.Healthy)
	w.step()
	if w.status("web", first) != isobar.Healthy {
		t.Error("healthy votes count at once")
	}
	w.all(isobar.Unhealthy)
	w.step()
	if w.status("web", first) != isobar.Unhealthy {
		t.Error("a checker that saw it healthy is believed at once")
	}
}

func TestACheckerThatStartsAnewBeginsWithUnhealthy(t *testing.T) {
	w := newWorld(t, topology(service("web", 1, zoneA)), checkersIn(1, zoneA, zoneB, zoneC))
	w.run(10 * time.Second)
	for i := range w.checkers { // all of them, at once: a release
		w.checkers[i].Since = w.now.Add(time.Millisecond)
	}
	w.all(isobar.Unhealthy)
	w.run(16 * time.Second)
	v := w.verdict("web", first)
	if v.Status != isobar.Healthy || !v.Frozen || v.Votes[0].Counts || !v.Votes[0].Fresh {
		t.Errorf("%+v, want votes that don't count yet", v)
	}
	w.run(4 * time.Second)
	if got := w.status("web", first); got != isobar.Unhealthy {
		t.Errorf("%s after its time, want unhealthy", got)
	}
}

func TestAddedEndpointsWait(t *testing.T) {
	w := one(t)
	w.run(10 * time.Second)
	bigger := service("web", 2, zoneA, zoneB, zoneC)
	const added = "10.0.0.1:80"
	w.topology = topology(bigger)
	w.says = func(_ string, k health.Key) isobar.HealthStatus {
		if k.Address == added {
			return isobar.Unhealthy
		}
		return isobar.Healthy
	}
	if changed := w.step(); len(changed) != 1 {
		t.Errorf("changed %v, want the service", changed)
	}
	v := w.verdict("web", added)
	if !v.Pending || v.Status != isobar.Unknown || w.status("web", added) != isobar.Unhealthy || !strings.Contains(v.Why, "new: gets no traffic") {
		t.Errorf("%+v, served as %s; want pending, without traffic", v, w.status("web", added))
	}
	w.run(10 * time.Second)
	w.all(isobar.Healthy)
	w.step()
	if v := w.verdict("web", added); v.Pending || v.Status != isobar.Healthy {
		t.Errorf("%+v, want healthy by its first quorum", v)
	}

	// One that nobody reports on is used after 30 s.
	w.topology = topology(service("web", 3, zoneA, zoneB, zoneC))
	const unseen = "10.0.0.2:80"
	w.says = func(_ string, k health.Key) isobar.HealthStatus {
		if k.Address == unseen {
			return isobar.Unknown
		}
		return isobar.Healthy
	}
	w.run(28 * time.Second)
	if got := w.status("web", unseen); got != isobar.Unhealthy {
		t.Errorf("%s after 28 s, want no traffic", got)
	}
	w.run(4 * time.Second)
	if _, found := w.book.Verdicts().Status("web", unseen); found {
		t.Error("after 30 s the configured status should count")
	}
}

func TestTheFirstEndpointsOfAServiceDoNotWait(t *testing.T) {
	w := newWorld(t, topology(service("web", 2, zoneA)), checkersIn(1, zoneA, zoneB, zoneC))
	w.all(isobar.Unknown)
	w.run(4 * time.Second)
	if _, found := w.book.Verdicts().Status("web", first); found {
		t.Error("before the first verdict the configured status should count")
	}
	w.topology = topology(service("web", 4, zoneA))
	w.step()
	if v := w.verdict("web", "10.0.0.3:80"); v.Pending {
		t.Error("an endpoint waits though no other has a verdict")
	}
}

func TestAllDownFailsOpen(t *testing.T) {
	w := newWorld(t, topology(service("web", 2, zoneA)), checkersIn(1, zoneA, zoneB, zoneC))
	w.run(4 * time.Second)
	w.all(isobar.Unhealthy)
	w.step()
	for _, v := range w.book.Explain("web") {
		if v.Status != isobar.Unhealthy || !v.FailOpen || !strings.Contains(v.Why, "clients may use them all the same") {
			t.Errorf("%+v, want unhealthy, failing open", v)
		}
	}
	if s := w.book.Summary("web"); !s.FailOpen || s.Down != 2 {
		t.Errorf("%+v", s)
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

func TestRestart(t *testing.T) {
	w := one(t)
	w.run(10 * time.Second)
	w.topology = topology(service("web", 2, zoneA, zoneB, zoneC))
	w.says = func(_ string, k health.Key) isobar.HealthStatus {
		switch k.Address {
		case first:
			return isobar.Timeout
		case "10.0.0.1:80":
			return isobar.Unknown
		}
		return isobar.Healthy
	}
	w.run(4 * time.Second)
	saved := w.book.Save()
	text, err := json.Marshal(saved)
	if err != nil {
		t.Fatal(err)
	}
	var read health.Saved
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	was := w.verdict("web", first)

	w.now = w.now.Add(time.Minute)
	w.book = health.NewBook(health.Settings{ReportInterval: interval}, read, w.now)
	if got := w.status("web", first); got != isobar.Timeout {
		t.Fatalf("%s before anything is known, want what was saved", got)
	}
	o := health.Observation{Now: w.now, Placement: w.placement, Topology: topology(service("web", 3, zoneA, zoneB, zoneC))}
	w.book.Observe(o)
	v := w.verdict("web", first)
	if v.Status != isobar.Timeout || !v.Since.Equal(was.Since) || !v.Confirmed.Equal(was.Confirmed) || !v.Frozen || len(v.Votes) != 3 || v.Votes[0].Status != isobar.Timeout || v.Votes[0].Fresh {
		t.Errorf("%+v, want %+v without fresh votes", v, was)
	}
	if v := w.verdict("web", "10.0.0.1:80"); v.Pending || v.Status != isobar.Unknown {
		t.Errorf("%+v: it has waited for longer than 30 s", v)
	}
	if v := w.verdict("web", "10.0.0.2:80"); !v.Pending {
		t.Errorf("%+v: it was added meanwhile and should wait", v)
	}
	for i := range w.checkers {
		w.checkers[i].Since = w.now.Add(time.Second)
	}
	w.topology = o.Topology
	w.all(isobar.Healthy)
	w.step()
	if got := w.status("web", first); got != isobar.Healthy {
		t.Errorf("%s after new votes, want healthy", got)
	}
}

func TestDamagedSavedState(t *testing.T) {
	future := start.Add(24 * time.Hour)
	key := health.Key{Service: "web", Address: first}
	saved := health.Saved{Endpoints: []health.SavedEndpoint{
		{Key: health.Key{Service: "web", Address: second}, Status: 77, Votes: []health.SavedVote{{Checker: "eu/a-0", Status: 99}}},
		{Key: key, Status: isobar.Healthy, Since: future, Confirmed: future, Votes: []health.SavedVote{
			{Checker: "eu/b-0", Status: isobar.Healthy, Since: future, Heard: future}, {Checker: "eu/b-0", Status: isobar.Timeout}, {Checker: "", Status: isobar.Healthy},
		}},
		{Key: key, Status: isobar.Timeout},
		{},
	}}
	w := one(t)
	w.book = health.NewBook(health.Settings{ReportInterval: interval}, saved, start)
	w.all(isobar.Unknown)
	w.step()
	if v := w.verdict("web", first); v.Status != isobar.Healthy || v.Since.After(start) || v.Confirmed.After(start) || v.Votes[1].Heard.After(start) {
		t.Errorf("%+v, want healthy, not in the future", v)
	}
	if v := w.verdict("web", second); v.Status != isobar.Unknown {
		t.Errorf("%+v, want no verdict", v)
	}
	w.all(isobar.Healthy)
	w.run(3 * interval)
	if got := w.count("web", isobar.Healthy); got != 3 {
		t.Errorf("%d healthy, want all 3", got)
	}
}
