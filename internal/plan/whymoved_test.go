package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestHistorySaysWhatSetAMoveOff: a line of the history names the demand or the capacity
// that differs, then what limits the move; of a failure it names the failure.
func TestHistorySaysWhatSetAMoveOff(t *testing.T) {
	l := &loop{t: t, top: threeZones(t), now: t0, decider: plan.NewDecider(interval, nil, t0)}
	l.turn(l.decider.Reapply)
	why := func(step func()) string {
		t.Helper()
		before := l.plan
		step()
		c, ok := plan.Changed(before, l.plan, plan.Origin{})
		if !ok || len(c.Services) != 1 {
			t.Fatalf("no share moved: %+v", c)
		}
		return c.Services[0].Reason
	}
	for range 10 {
		l.tick(100, false)
	}
	got := why(func() { l.tick(520, false) })
	for _, part := range []string{"demand from us/a rose from 300 to 1096 requests/s; ", "moved toward us/b, and the next decisions move another "} {
		if !strings.Contains(got, part) {
			t.Errorf("after a step of demand: %q, want %q", got, part)
		}
	}
	if cause := plan.CauseIn(got); cause != "demand from us/a rose from 300 to 1096 requests/s" {
		t.Errorf("the cause in %q: %q", got, cause)
	}
	for range 20 {
		l.tick(520, false)
	}
	slow := *l.top
	slow.Services = slices.Clone(l.top.Services)
	slow.Services[0].Localities = slices.Clone(l.top.Services[0].Localities)
	for i := range slow.Services[0].Localities {
		if s := &slow.Services[0].Localities[i]; s.Locality == loc("us/a") {
			s.MaxRate = 500
		}
	}
	slow.Revision++
	l.top = &slow
	if got := why(func() { l.tick(520, false) }); !strings.HasPrefix(got, "capacity of us/a fell from 1000 to 500 requests/s") {
		t.Errorf("with half of the capacity: %q", got)
	}
	for range 20 {
		l.tick(520, false)
	}
	// A failure is told in place of what it does to capacity.
	if got := why(func() { l.tick(520, true) }); !strings.Contains(got, "moved off us/a") || strings.Contains(got, "capacity") {
		t.Errorf("a locality out of reach: %q", got)
	}
}

// moment is what a few decisions are made from.
type moment struct {
	rates       map[string]float64 // of the sources, requests/s
	variability float64            // of the demand of the first source
	held        string             // the locality in which more fails than before
	watched     string             // a source that wants the service and sends nothing
	edit        []func(*isobar.Service)
	ticks       int // 0 = one
}

// decide plans from a moment after another plan.
func (m *moment) decide(t *testing.T, before *plan.Plan) *plan.Plan {
	t.Helper()
	top := threeZones(t)
	for _, edit := range m.edit {
		edit(&top.Services[0])
	}
	for range max(1, m.ticks) {
		in := plan.Input{Now: t0, Trigger: assign.Tick, Topology: top, Previous: before, Version: 1}
		if before != nil {
			in.Now, in.Version = before.Made.Add(interval), before.Version+1
		}
		in.Load = demand(in.Now, "checkout", m.rates)
		in.Load.Services[0].Sources[0].Variability = m.variability
		if m.held != "" {
			in.Deviations = []load.Deviations{{Service: "checkout", Rising: []isobar.Locality{loc(m.held)}}}
		}
		if m.watched != "" {
			in.Subscribed = []load.Subscription{{Service: "checkout", Source: loc(m.watched)}}
		}
		before = decided(t, in)
	}
	return before
}

// rated declares the capacity of a locality; 0 = none is declared.
func rated(name string, rate float64, endpoints ...isobar.Endpoint) func(*isobar.Service) {
	return func(s *isobar.Service) {
		for i := range s.Localities {
			if l := &s.Localities[i]; l.Locality == loc(name) {
				if l.MaxRate = rate; endpoints != nil {
					l.Endpoints = endpoints
				}
			}
		}
	}
}

func without(name string) func(*isobar.Service) {
	return func(s *isobar.Service) {
		s.Localities = slices.DeleteFunc(s.Localities, func(l isobar.ServiceLocality) bool { return l.Locality == loc(name) })
	}
}

// TestHistoryNamesTheCause: what a line of the history names first of the last of some
// moments, and that it names nothing where nothing that changed explains the move.
func TestHistoryNamesTheCause(t *testing.T) {
	type rates = map[string]float64
	type edits = []func(*isobar.Service)
	const settled = 20 // ticks
	halved := edits{rated("us/a", 500)}
	unknown := edits{
		without("eu/a"), rated("us/b", 0, endpoints("10.0.1.1:80")...),
		rated("us/a", 0, endpoints("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80")...),
	}
	for _, tt := range []struct {
		name    string
		moments []moment
		want    []string // in this order, from the beginning
	}{
		{
			"a small source goes up and down while a paced move goes on",
			[]moment{{rates: rates{"us/a": 700, "us/b": 10}, ticks: settled}, {rates: rates{"us/a": 700, "us/b": 10}, edit: halved}, {rates: rates{"us/a": 700, "us/b": 10.6}, edit: halved}},
			[]string{"10.0% of the requests moved toward us/b"},
		},
		{
			"a small source doubles while a paced move goes on",
			[]moment{{rates: rates{"us/a": 700, "us/b": 30}, ticks: settled}, {rates: rates{"us/a": 700, "us/b": 30}, edit: halved}, {rates: rates{"us/a": 700, "us/b": 60}, edit: halved}},
			[]string{"10.0% of the requests moved toward us/b"},
		},
		{
			"a small source doubles while a capacity elsewhere moves it",
			[]moment{{rates: rates{"": 2, "us/a": 700}, ticks: settled}, {rates: rates{"": 4, "us/a": 700}, edit: edits{rated("eu/a", 955)}}},
			[]string{"clients without a locality: by headroom alone"},
		},
		{
			"half of a capacity is gone while demand varies",
			[]moment{{rates: rates{"us/a": 700}, variability: 0.5, ticks: settled}, {rates: rates{"us/a": 700}, variability: 0.5, edit: edits{rated("us/a", 500)}}},
			[]string{"capacity of us/a fell from 1000 to 500 requests/s; ", "demand varies by 50% within report intervals", "moved toward us/b"},
		},
		{
			"half of a capacity is gone while demand does not fit",
			[]moment{{rates: rates{"us/a": 2500}, ticks: settled}, {rates: rates{"us/a": 2500}, edit: edits{rated("us/b", 500)}}},
			[]string{"capacity of us/b fell from 1000 to 500 requests/s; ", "demand exceeds the ceilings: Isobar raises them"},
		},
		{
			"a source is gone",
			[]moment{{rates: rates{"us/a": 1000, "us/b": 700}, ticks: settled}, {rates: rates{"us/a": 1000}}},
			[]string{"demand from us/b fell from 700 to 0 requests/s: its clients are gone; ", "moved toward us/b"},
		},
		{
			"a source without demand is gone",
			[]moment{{rates: rates{"us/a": 300}, watched: "us/b", ticks: settled}, {rates: rates{"us/a": 300}}},
			[]string{"the clients of us/b are gone"},
		},
		{
			"a source is new",
			[]moment{{rates: rates{"us/a": 1000}, ticks: settled}, {rates: rates{"us/a": 1000, "us/b": 700}}},
			[]string{"demand from us/b rose from 0 to 700 requests/s; ", "moved toward us/a"},
		},
		{
			"a locality is new",
			[]moment{{rates: rates{"us/a": 1200}, edit: edits{without("us/b")}, ticks: settled}, {rates: rates{"us/a": 1200}}},
			[]string{"capacity of us/b rose from 0 to 1000 requests/s; ", "moved toward us/b"},
		},
		{
			"clients without a locality move to where capacity is left",
			[]moment{{rates: rates{"": 700}, ticks: settled}, {rates: rates{"": 700}, edit: edits{rated("us/b", 300)}}},
			[]string{"capacity of us/b fell from 1000 to 300 requests/s; ", "clients without a locality: by headroom alone"},
		},
		{
			"a capacity that nobody knows follows demand",
			[]moment{{rates: rates{"us/a": 100, "us/b": 100}, edit: unknown, ticks: settled}, {rates: rates{"us/a": 100, "us/b": 700}, edit: unknown}},
			[]string{"demand from us/b rose from 100 to 700 requests/s"},
		},
		{
			"demand goes elsewhere, because requests fail in the next locality",
			[]moment{{rates: rates{"us/a": 300}, ticks: settled}, {rates: rates{"us/a": 1500}, held: "us/b"}},
			[]string{"demand from us/a rose from 300 to 1500 requests/s; ", "us/b: a larger part of the requests there fails than before", "moved toward eu/a"},
		},
		{
			"a paced move goes elsewhere, because requests fail in the next locality",
			[]moment{{rates: rates{"us/a": 300}, ticks: settled}, {rates: rates{"us/a": 1500}}, {rates: rates{"us/a": 1500}, held: "us/b"}},
			[]string{"us/b: a larger part of the requests there fails than before"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var before, after *plan.Plan
			for i := range tt.moments {
				before, after = after, tt.moments[i].decide(t, after)
			}
			c, ok := plan.Changed(before, after, plan.Origin{})
			if !ok || len(c.Services) != 1 {
				t.Fatalf("no share moved: %+v", c)
			}
			got := c.Services[0].Reason
			t.Log(got, c.Services[0].Sources)
			rest := got
			for i, part := range tt.want {
				at := strings.Index(rest, part)
				if at < 0 || (i == 0 && at > 0) {
					t.Fatalf("got %q, want %q in this order", got, tt.want)
				}
				rest = rest[at+len(part):]
			}
		})
	}
}
