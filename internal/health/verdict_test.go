package health_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

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

// Votes of checkers that never saw an endpoint up count once they had time to probe it.
// Verdicts follow them at the next look at all endpoints, and until then the explanation says so.
func TestVotesThatOnlyNowCount(t *testing.T) {
	o := newOffice(t, topology(service("web", 3, zoneA)), checkersIn(1, zoneA, zoneB, zoneC))
	o.says = func(_ string, k health.Key) isobar.HealthStatus {
		if k.Address == first {
			return isobar.Unhealthy
		}
		return isobar.Healthy
	}
	explain := func() string {
		return o.keeper.VerdictTable().Explain("web")[0].Why
	}
	o.step(interval)
	listed := o.now
	for _, at := range []struct {
		after time.Duration // since the checkers began
		want  string
	}{
		{17900 * time.Millisecond, "no verdict yet, the configured status counts: no majority among 3 fresh votes"},
		{18 * time.Second, "no verdict yet, the configured status counts: the votes are new"},
		{20 * time.Second, "3 of 3 fresh votes in 3 zones agree"},
	} {
		for o.now.Add(interval).Before(listed.Add(at.after)) {
			o.step(interval)
		}
		o.now = listed.Add(at.after)
		o.look()
		if got := explain(); got != at.want {
			t.Errorf("after %s: %q, want %q", at.after, got, at.want)
		}
	}
}
