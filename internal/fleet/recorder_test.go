package fleet_test

import (
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
		r.Arrived(to, due)
		r.Record(fleet.Sample{Source: from, Landed: to, Due: due, Latency: latency})
	}
}

func failed(r *fleet.Recorder, second int, from isobar.Locality, n int) {
	for range n {
		r.Record(fleet.Sample{Source: from, Due: epoch.Add(time.Duration(second) * time.Second), Failed: true})
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
	if empty := r.Window(5*time.Second, 9*time.Second); empty.Requests != 0 || empty.P99 != 0 || empty.CrossRegion != 0 {
		t.Errorf("a window without slots: %+v", empty)
	}
}

func TestRecorderSettles(t *testing.T) {
	cases := map[string]struct {
		loads  []int // requests/s to a zone of 100 requests/s, from second 0 on
		failed map[int]int
		want   time.Duration
		ok     bool
	}{
		"at once":            {loads: []int{80, 80, 80, 80, 80, 80}, want: 0, ok: true},
		"after two seconds":  {loads: []int{130, 130, 80, 80, 80, 80}, want: 2 * time.Second, ok: true},
		"noise is smoothed":  {loads: []int{80, 95, 80, 80, 80, 80}, want: 0, ok: true},
		"never":              {loads: []int{130, 130, 130, 130, 130, 130}},
		"relapsed":           {loads: []int{80, 80, 80, 80, 80, 130}},
		"failures count":     {loads: []int{80, 80, 80, 80, 80, 80}, failed: map[int]int{1: 1}, want: 2 * time.Second, ok: true},
		"failing at the end": {loads: []int{80, 80, 80, 80, 80, 80}, failed: map[int]int{5: 1}},
		"nothing sent":       {loads: []int{0, 0, 0, 0, 0, 0}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := fleet.NewRecorder(epoch, time.Second, threeZones())
			for second, n := range c.loads {
				sent(r, second, zoneA, zoneA, n, time.Millisecond)
				failed(r, second, zoneA, c.failed[second])
			}
			after, ok := r.Settled(0, 6*time.Second, 0.9)
			if after != c.want || ok != c.ok {
				t.Errorf("settled after %v, %v; want %v, %v", after, ok, c.want, c.ok)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	settled := fleet.PhaseOutcome{Zone: zoneA, Settled: true, SecondsToSettle: 3}
	overloaded := fleet.PhaseOutcome{Zone: zoneA, Seconds: 14, FullestZone: zoneB, FullestLoad: 1.3, Failed: 12}
	lost := settled
	lost.Failed = 5
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
			why:      []string{"not settled 14 s after the step in r/a: r/b is loaded at 130%, 12 requests failed"},
		},
		"failed": {
			outcomes: []fleet.Outcome{{Mode: isobar.ModeFull, Step: settled, Loss: lost}},
			why:      []string{"5 requests failed from 2s after the loss, where capacity allows to serve all but 0"},
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
