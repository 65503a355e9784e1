package health_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

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
	w.book = health.NewVerdictTable(health.Settings{ReportInterval: interval}, read, w.now)
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
	w.book = health.NewVerdictTable(health.Settings{ReportInterval: interval}, saved, start)
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

// A clock that was set back makes streams seem older than the previous ones.
func TestAClockThatIsSetBackOverARestart(t *testing.T) {
	o := atRest(t, 5, 1, zoneA, zoneB, zoneC)
	o.restart(func(s *health.SavedKeeper) {
		for i := range s.Checkers {
			s.Checkers[i].Since = start.Add(time.Hour)
		}
	})
	o.keeper.Observe(health.Event{Now: o.now, Topology: o.topology}) // nobody is connected yet
	for i := range o.connected {
		o.connected[i].Since = o.now.Add(time.Second)
	}
	o.dead(second)
	ignored := 0
	for range 15 {
		ignored += o.step(interval).Ignored
	}
	if got := o.told(second); got != isobar.Unhealthy || ignored != 0 {
		t.Errorf("%s after 30 s, %d reports ignored; want unhealthy and none", got, ignored)
	}
}
