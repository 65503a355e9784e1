package health_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// mortals are checkers whose processes end when they are told to probe certain
// services, and that are started again after two seconds.
type mortals struct {
	*monitorWorld

	all    []health.Checker
	deadly func(checker, service string) bool
	told   map[string][]string  // services, by checker, since it started
	back   map[string]time.Time // when those that are away are
	ends   []string             // checkers, in order
}

func newMortals(tb testing.TB, deadly func(checker, service string) bool, services ...isobar.Service) *mortals {
	tb.Helper()
	all := checkersIn(2, zoneA, zoneB, zoneC)
	m := &mortals{
		monitorWorld: newMonitorWorld(tb, topology(services...), slices.Clone(all)), all: all, deadly: deadly,
		told: map[string][]string{}, back: map[string]time.Time{},
	}
	return m
}

// pass lets time go by in half seconds: checkers are told, end, return and report.
func (m *mortals) pass(d time.Duration) {
	for end := m.now.Add(d); m.now.Before(end); {
		m.now = m.now.Add(500 * time.Millisecond)
		report := m.now.Sub(start)%interval == 0
		event := health.Event{Now: m.now, Topology: m.topology}
		p := m.monitor.Placement()
		for _, c := range m.all {
			if at, away := m.back[c.ID]; away {
				if m.now.Before(at) {
					continue
				}
				delete(m.back, c.ID)
				m.told[c.ID] = nil
			}
			m.round(c, p.Of(c.ID), report, &event)
		}
		m.last = m.monitor.Observe(event)
	}
}

// round is what one checker does.
func (m *mortals) round(c health.Checker, keys []health.Key, report bool, event *health.Event) {
	var services, news []string
	for _, k := range keys {
		if !slices.Contains(services, k.Service) {
			services = append(services, k.Service)
		}
	}
	for _, s := range services {
		if !slices.Contains(m.told[c.ID], s) {
			news = append(news, s)
		}
	}
	m.told[c.ID] = services
	if slices.ContainsFunc(news, func(s string) bool { return m.deadly(c.ID, s) }) {
		m.ends = append(m.ends, c.ID)
		m.back[c.ID] = m.now.Add(2 * time.Second)
		event.Ended = append(event.Ended, health.Ended{Checker: c.ID, Services: news, At: m.now})
		return
	}
	c.LastSeen = m.now
	event.Connected = append(event.Connected, c)
	for _, k := range keys {
		if report {
			event.Reports = append(event.Reports, health.Report{Checker: c.ID, Service: k.Service, Address: k.Address, Status: isobar.Healthy, Arrived: m.now})
		}
	}
}

// suspected lists the services that are.
func (m *mortals) suspected() (out []string) {
	for _, r := range m.monitor.Overview() {
		if r.Suspicion != nil {
			out = append(out, r.Service)
		}
	}
	return out
}

// votes counts the fresh votes on the one endpoint in eu/a of a service.
func (m *mortals) votes(service string) (n int) {
	for _, v := range m.monitor.VerdictTable().Explain(service)[0].Votes {
		if v.Fresh {
			n++
		}
	}
	return n
}

func numbered(n int) (out []isobar.Service) {
	for i := range n {
		s := service(fmt.Sprintf("s%02d", i), 1, zoneA)
		s.Localities[0].Endpoints[0].Address = fmt.Sprintf("10.0.1.%d:80", i)
		out = append(out, s)
	}
	return out
}

// A service whose check ends every checker that is told of it is found among
// those that came with it, and takes few of them with it.
func TestServiceThatEndsCheckers(t *testing.T) {
	deadly := func(_, service string) bool { return service == "s07" }
	m := newMortals(t, deadly, numbered(20)...)
	m.pass(30 * time.Second)
	if got := m.suspected(); !slices.Contains(got, "s07") {
		t.Fatalf("after %d ends %v are suspected, want s07 among them", len(m.ends), got)
	}
	m.pass(11 * time.Minute)
	if got := m.suspected(); !slices.Equal(got, []string{"s07"}) {
		t.Errorf("%v are suspected, want s07 alone", got)
	}
	for _, r := range m.monitor.Overview() {
		if n := m.votes(r.Service); r.Service != "s07" && n < 3 {
			t.Errorf("%s has %d votes, want 3: it does no harm", r.Service, n)
		}
	}
	before := len(m.ends)
	if before > 20 {
		t.Errorf("%d checkers ended in 11 minutes: %v", before, m.ends)
	}
	m.pass(time.Hour)
	if later := len(m.ends) - before; later > 7 {
		t.Errorf("%d checkers ended in the hour after, want one each 10 minutes", later)
	}
	r := m.monitor.Report("s07")[0]
	if s := r.Suspicion; s == nil || !strings.Contains(s.Text(), "eu/a-0") || len(s.Probing) > 0 {
		t.Errorf("%+v, want who ended named", s)
	}
	if len(r.Shortfalls) != 1 || !strings.Contains(r.Shortfalls[0].Why, "disconnected after Isobar assigned this service to them") {
		t.Errorf("%+v, want the reason", r.Shortfalls)
	}

	// Once the check is another one, it is given to all again.
	m.deadly = func(string, string) bool { return false }
	mended := numbered(20)
	m.topology = topology(mended...) // as after a reload
	m.pass(time.Second)
	if got := m.suspected(); !slices.Equal(got, []string{"s07"}) {
		t.Errorf("nothing changed: %v are suspected, want s07", got)
	}
	mended = numbered(20)
	mended[7].HealthChecks[0].TCP = &isobar.TCPCheck{Send: []byte("x")}
	m.topology = topology(mended...)
	m.pass(10 * time.Second)
	if n := m.votes("s07"); slices.Contains(m.suspected(), "s07") || n != 3 {
		t.Errorf("the check was changed: %v are suspected, %d votes", m.suspected(), n)
	}
}

// What is compared of a check to tell whether it changed is all that there is.
func TestChecksAreComparedWhole(t *testing.T) {
	for _, of := range []struct {
		kind reflect.Type
		want int
	}{{reflect.TypeFor[isobar.HTTPCheck](), 6}, {reflect.TypeFor[isobar.TCPCheck](), 2}} {
		if n := of.kind.NumField(); n != of.want {
			t.Errorf("%s has %d fields, want %d: sameCheck has to know them", of.kind, n, of.want)
		}
	}
}

// One that is added later is known at once: nothing else is new to those that end.
func TestAddedServiceThatEndsCheckers(t *testing.T) {
	m := newMortals(t, func(_, service string) bool { return service == "zz" }, numbered(20)...)
	m.pass(20 * time.Second)
	bad := service("zz", 1, zoneA)
	m.topology = topology(append(numbered(20), bad)...)
	m.pass(20 * time.Second)
	if got := m.suspected(); !slices.Equal(got, []string{"zz"}) || len(m.ends) > 4 {
		t.Errorf("%v are suspected after %v ended, want zz after 3", got, m.ends)
	}
	m.pass(time.Minute)
	for i := range 20 {
		if n := m.votes(fmt.Sprintf("s%02d", i)); n < 3 {
			t.Errorf("service %d has %d votes", i, n)
		}
	}
}

// A checker that ends on whatever it is given, or on more than it can take,
// leaves the others their services.
func TestCheckerThatEndsOnAnything(t *testing.T) {
	m := newMortals(t, func(checker, _ string) bool { return checker == "eu/a-0" }, numbered(20)...)
	m.pass(15 * time.Minute)
	for i := range 20 {
		if n := m.votes(fmt.Sprintf("s%02d", i)); n < 3 {
			t.Errorf("service %d has %d votes", i, n)
		}
	}
	if n := len(m.ends); n > 60 {
		t.Errorf("it ended %d times in 15 minutes", n)
	}
	if i := slices.IndexFunc(m.ends, func(id string) bool { return id != "eu/a-0" }); i >= 0 {
		t.Errorf("%s ended, too", m.ends[i])
	}
}

// Checkers that are cut off one after the other are no reason to suspect anything
// that was not new to them.
func TestCheckersThatLeaveSuspectNothing(t *testing.T) {
	m := newMortals(t, func(string, string) bool { return false }, numbered(3)...)
	m.pass(20 * time.Second)
	m.all = m.all[:1]
	m.pass(time.Minute)
	if got := m.suspected(); len(got) > 0 {
		t.Errorf("%v are suspected", got)
	}
}

// No checker is given more endpoints than it takes; each counts once for each
// check.
func TestPlaceBoundsEndpoints(t *testing.T) {
	for name, tc := range map[string]struct {
		checks, most, short int
	}{
		"enough":     {1, 30, 0},
		"two checks": {2, 60, 0},
		"too few":    {1, 20, 10},
		"none":       {3, 2, 30},
	} {
		t.Run(name, func(t *testing.T) {
			s := service("web", 10, zoneA, zoneB, zoneC)
			s.HealthChecks = slices.Repeat(s.HealthChecks, tc.checks)
			checkers := checkersIn(1, zoneA, zoneB, zoneC)
			for i := range checkers {
				checkers[i].MaxEndpoints = tc.most
			}
			in := health.PlacementInput{Topology: topology(s), Checkers: checkers}
			p := health.Place(in)
			for _, d := range p.Designations {
				if n := len(d.Endpoints) * tc.checks; n > tc.most {
					t.Errorf("%s has %d endpoints", d.Checker, n)
				}
			}
			lacking := 0
			for _, s := range p.Shortfalls {
				lacking += s.Want - s.Checkers
				if !strings.Contains(s.Why, fmt.Sprintf("limit of %d endpoints", tc.most)) {
					t.Errorf("%+v, want the limit named", s)
				}
			}
			if lacking != tc.short*3 {
				t.Errorf("%d checkers are lacking, want %d", lacking, tc.short*3)
			}
			// A limit that shrinks takes endpoints away, and one that grows gives them back.
			for i := range in.Checkers {
				in.Checkers[i].MaxEndpoints = 5 * tc.checks
			}
			in.Previous = p
			less := health.Place(in)
			for _, d := range less.Designations {
				if len(d.Endpoints) != 5 {
					t.Errorf("%s has %d endpoints, want 5", d.Checker, len(d.Endpoints))
				}
			}
			for i := range in.Checkers {
				in.Checkers[i].MaxEndpoints = 0
			}
			in.Previous = less
			if all := health.Place(in); len(all.Shortfalls) > 0 {
				t.Errorf("without a limit: %+v", all.Shortfalls[0])
			}
		})
	}
}

// A restart of the server forgets nothing of a suspected service: it is not given
// to all checkers again.
func TestSuspicionSurvivesARestart(t *testing.T) {
	m := newMortals(t, func(_, service string) bool { return service == "s07" }, numbered(20)...)
	m.pass(12 * time.Minute)
	if got := m.suspected(); !slices.Equal(got, []string{"s07"}) || m.monitor.Suspected() != 1 {
		t.Fatalf("%v are suspected, want s07", got)
	}
	was := m.monitor.Report("s07")[0].Suspicion
	before := len(m.ends)
	m.restart(nil)
	m.pass(time.Minute)
	if got := m.suspected(); !slices.Equal(got, []string{"s07"}) {
		t.Fatalf("after the restart %v are suspected, want s07", got)
	}
	if n := len(m.ends) - before; n > 1 {
		t.Errorf("%d checkers ended in the minute after the restart, want one at most: %v", n, m.ends[before:])
	}
	if now := m.monitor.Report("s07")[0].Suspicion; now.Ends < was.Ends || len(now.Checkers) < len(was.Checkers) {
		t.Errorf("%+v, want no less than %+v", now, was)
	}

	// What was saved can be damaged, and a check that changed meanwhile ends the suspicion.
	m.restart(func(s *health.SavedMonitor) {
		s.Suspects = append(s.Suspects, s.Suspects[0], health.SavedSuspect{Ends: 3}, health.SavedSuspect{Service: "s08", Ends: -1})
	})
	if n := m.monitor.Suspected(); n != 1 {
		t.Errorf("%d services are suspected of what was damaged, want 1", n)
	}
	m.deadly = func(string, string) bool { return false }
	mended := numbered(20)
	mended[7].HealthChecks = slices.Clone(mended[7].HealthChecks)
	mended[7].HealthChecks[0].TCP = &isobar.TCPCheck{Send: []byte("another")}
	m.topology = topology(mended...)
	m.pass(time.Second)
	if got := m.suspected(); len(got) > 0 {
		t.Errorf("%v are suspected of another check", got)
	}
}
