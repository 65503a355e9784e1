package fleet_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func threeZones() []fleet.Zone {
	return []fleet.Zone{{Locality: zoneA, Capacity: 100}, {Locality: zoneB, Capacity: 100}, {Locality: zoneC, Capacity: 200}}
}

// sent is n requests from one zone to another in one slot.
func sent(r *fleet.Recorder, second int, from, to isobar.Locality, n int, latency time.Duration) {
	due := epoch.Add(time.Duration(second)*time.Second + 500*time.Millisecond)
	for range n {
		r.Wanted(from, due)
		r.Arrived(to, due)
		r.Record(fleet.Sample{Source: from, Landed: to, Due: due, Latency: latency})
	}
}

// failed is n requests of a zone that failed at once.
func failed(r *fleet.Recorder, second int, from isobar.Locality, n int) {
	failedAfter(r, second, from, n, 0, "")
}

func failedAfter(r *fleet.Recorder, second int, from isobar.Locality, n int, latency time.Duration, cause string) {
	due := epoch.Add(time.Duration(second) * time.Second)
	for range n {
		r.Wanted(from, due)
		r.Record(fleet.Sample{Source: from, Due: due, Latency: latency, Failed: true, Cause: cause})
	}
}

func TestRecorderSumsUpWindows(t *testing.T) {
	r := fleet.NewRecorder(epoch, time.Second, threeZones())
	sent(r, -1, zoneA, zoneA, 7, time.Second) // before the beginning: not counted
	sent(r, 0, zoneA, zoneA, 60, 10*time.Millisecond)
	sent(r, 1, zoneA, zoneA, 120, 30*time.Millisecond)
	sent(r, 1, zoneB, zoneC, 40, 70*time.Millisecond)
	failed(r, 1, zoneA, 20)

	w := r.Window(0, 2*time.Second)
	if w.Requests != 240 || w.Served != 220 || w.Failed != 20 {
		t.Errorf("requests %d, served %d, failed %d; want 240, 220, 20", w.Requests, w.Served, w.Failed)
	}
	near(t, "cross-region share", w.CrossRegion, 40.0/220, 1e-9)
	near(t, "mean", w.Mean.Seconds()*1000, (60*10+120*30+40*70)/220.0, 1e-3)
	near(t, "p99", w.P99.Seconds()*1000, 70, 3)
	near(t, "demand of a", w.Zones[0].Demand, 100, 1e-9)
	near(t, "load of a", w.Zones[0].Load, 0.9, 1e-9)
	near(t, "load of c", w.Zones[2].Load, 0.1, 1e-9)
	near(t, "from b to c", w.Zones[1].Sent[2], 20, 1e-9)
	if l, load := w.Fullest(); l != zoneA || load != w.Zones[0].Load {
		t.Errorf("fullest is %s at %v", l, load)
	}
	second := r.Window(time.Second, 2*time.Second)
	near(t, "load of a in the second slot", second.Zones[0].Load, 1.2, 1e-9)
	early := r.Window(-time.Second, time.Second)
	near(t, "demand of a over the only slot that there was", early.Zones[0].Demand, 60, 1e-9)
	if empty := r.Window(5*time.Second, 9*time.Second); empty.Requests != 0 || empty.P99 != 0 || empty.CrossRegion != 0 {
		t.Errorf("a window without slots: %+v", empty)
	}
}

// TestRecorderCountsWhatIsOpen: what clients want to send counts when it is
// due, also while an overloaded fleet has not answered it yet.
func TestRecorderCountsWhatIsOpen(t *testing.T) {
	r := fleet.NewRecorder(epoch, time.Second, threeZones())
	sent(r, 0, zoneA, zoneA, 10, time.Millisecond)
	failed(r, 0, zoneA, 2)
	for range 30 {
		r.Wanted(zoneA, epoch)
	}
	if n := r.Open(); n != 30 {
		t.Errorf("%d requests open, want 30", n)
	}
	w := r.Window(0, time.Second)
	if w.Requests != 12 {
		t.Errorf("%d requests ended, want 12", w.Requests)
	}
	near(t, "demand of a", w.Zones[0].Demand, 42, 1e-9)
}

func TestRecorderFailures(t *testing.T) {
	r := fleet.NewRecorder(epoch, time.Second, threeZones())
	failedAfter(r, 1, zoneA, 3, 500*time.Millisecond, "ResourceExhausted")
	failedAfter(r, 1, zoneA, 4, 1500*time.Millisecond, "Unavailable")
	failedAfter(r, 2, zoneB, 1, time.Second, "DeadlineExceeded")
	failedAfter(r, 2, zoneB, 1, 0, "")

	const want = "[4 Unavailable 3 ResourceExhausted 1 DeadlineExceeded 1 unknown]"
	if got := fmt.Sprint(r.Window(0, 3*time.Second).Causes); got != want {
		t.Errorf("causes %s, want %s", got, want)
	}
	cases := []struct {
		from, to, event int // seconds
		want            uint64
	}{
		{0, 2, 2, 4}, // due in second 1, failed at 2.5
		{0, 3, 3, 1}, // the deadline at 3
		{0, 1, 2, 0},
		{0, 9, 0, 9}, // a window may be longer than the run so far
		{2, 3, 4, 0},
	}
	for _, c := range cases {
		got := r.FailedUnderWay(time.Duration(c.from)*time.Second, time.Duration(c.to)*time.Second, time.Duration(c.event)*time.Second)
		if got != c.want {
			t.Errorf("due from %d to %d s and failed from %d s on: %d, want %d", c.from, c.to, c.event, got, c.want)
		}
	}
}

func TestRecorderFailuresAtABackend(t *testing.T) {
	r := fleet.NewRecorder(epoch, time.Second, threeZones())
	at := func(backend string, due, ended time.Duration, failed bool) {
		r.Wanted(zoneA, epoch.Add(due))
		r.Record(fleet.Sample{Source: zoneA, Landed: zoneB, Backend: backend, Due: epoch.Add(due), Latency: ended - due, Failed: failed})
	}
	const ms = time.Millisecond
	at("x", 900*ms, 2100*ms, true)  // due before the window
	at("x", 1100*ms, 1900*ms, true) // failed before the event
	at("x", 1100*ms, 2000*ms, true)
	at("x", 2500*ms, 4500*ms, true)
	at("x", 2500*ms, 5000*ms, true) // failed too late
	at("x", 2500*ms, 2600*ms, false)
	at("y", 2500*ms, 4500*ms, true)
	at("x", 3000*ms, 4500*ms, true) // due after the window
	if n := r.FailedAt("x", time.Second, 3*time.Second, 2*time.Second, 5*time.Second); n != 2 {
		t.Errorf("%d failed at x, want 2", n)
	}
}

func TestRecorderSettles(t *testing.T) {
	cases := map[string]struct {
		loads  []int // requests/s to a zone of 100 requests/s, from second 0 on
		failed map[int]int
		want   time.Duration
		why    string
	}{
		"at once":           {loads: []int{80, 80, 80, 80, 80, 80}, want: 0},
		"after two seconds": {loads: []int{130, 130, 80, 80, 80, 80}, want: 2 * time.Second},
		"noise is smoothed": {loads: []int{80, 95, 80, 80, 80, 80}, want: 0},
		"failures count":    {loads: []int{80, 80, 80, 80, 80, 80}, failed: map[int]int{1: 1}, want: 2 * time.Second},
		"never":             {loads: []int{130, 130, 130, 130, 130, 130}, why: "in the last 3s r/a was loaded at 130%, above 90%"},
		"relapsed":          {loads: []int{80, 80, 80, 80, 80, 130}, why: "in the last 3s r/a was loaded at 97%, above 90%"},
		"failing at the end": {
			loads: []int{60, 60, 60, 60, 60, 60}, failed: map[int]int{5: 1},
			why: "in the last 3s 1 of 181 requests failed (1 unknown)",
		},
		"overloaded and failing": {
			loads: []int{130, 130, 130, 130, 130, 130}, failed: map[int]int{5: 2},
			why: "in the last 3s r/a was loaded at 130%, above 90% and 2 of 392 requests failed (2 unknown)",
		},
		"nothing sent": {loads: []int{0, 0, 0, 0, 0, 0}, why: "in the last 3s nothing was sent"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := fleet.NewRecorder(epoch, time.Second, threeZones())
			for second, n := range c.loads {
				sent(r, second, zoneA, zoneA, n, time.Millisecond)
				failed(r, second, zoneA, c.failed[second])
			}
			after, why := r.Settled(0, 6*time.Second, 0.9)
			if after != c.want || why != c.why {
				t.Errorf("settled after %v, %q; want %v, %q", after, why, c.want, c.why)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	settled := fleet.PhaseOutcome{Zone: zoneA, Settled: true, SecondsToSettle: 3}
	overloaded := fleet.PhaseOutcome{
		Zone: zoneA, Seconds: 14, FullestZone: zoneB, FullestLoad: 0.6, Failed: 12, Unavoidable: 12,
		WhyNotSettled: "in the last 3s 12 of 99 requests failed (12 Unavailable)",
	}
	lost := settled
	lost.Failed, lost.FailedAtOnce, lost.FailedUnderWay = 5, 7, 9
	short := lost
	short.Unavoidable = 5
	cases := map[string]struct {
		outcomes []fleet.Outcome
		why      []string
	}{
		"good": {outcomes: []fleet.Outcome{
			{Mode: isobar.ModeObserve, Step: overloaded, Loss: overloaded}, {Mode: isobar.ModeFull, Step: settled, Loss: settled},
		}},
		"too little capacity for all": {outcomes: []fleet.Outcome{{Mode: isobar.ModeFull, Step: settled, Loss: short}}},
		"not settled": {
			outcomes: []fleet.Outcome{{Mode: isobar.ModeFull, Step: overloaded, Loss: settled}},
			why:      []string{"not settled 14 s after the load step in r/a: in the last 3s 12 of 99 requests failed (12 Unavailable)"},
		},
		"failed": {
			outcomes: []fleet.Outcome{{Mode: isobar.ModeFull, Step: settled, Loss: lost}},
			why:      []string{"5 requests failed from 2s after the loss, unavoidable were 0"},
		},
		"failed in the step": {
			outcomes: []fleet.Outcome{{Mode: isobar.ModeFull, Step: lost, Loss: settled}},
			why:      []string{"5 requests failed in the load step, unavoidable were 0"},
		},
		"failed without any reason": {
			outcomes: []fleet.Outcome{{Mode: isobar.ModeFull, Step: settled, Loss: settled, FailedElsewhere: 1}},
			why:      []string{"1 requests failed outside of both phases, unavoidable were 0"},
		},
		"not run": {outcomes: []fleet.Outcome{{Mode: isobar.ModeObserve}}, why: []string{"mode full was not run"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v := fleet.Judge(c.outcomes)
			if v.OK != (len(c.why) == 0) || len(v.Why) != len(c.why) {
				t.Fatalf("ok %v, why %q; want %q", v.OK, v.Why, c.why)
			}
			for i := range c.why {
				if v.Why[i] != c.why[i] {
					t.Errorf("why %q, want %q", v.Why[i], c.why[i])
				}
			}
		})
	}
}
