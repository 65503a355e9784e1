package plan_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// queued is two zones that declare 1000 requests/s each, of which us/a serves
// less. Clients in us/a wait for answers for a second at most.
type queued struct {
	*loop

	serves  map[string]float64 // requests/s
	slow    map[string]float64 // seconds that each request takes longer
	fails   map[string]float64 // part of the requests that fails whatever the load
	clients int                // that send; 0 = three
	mute    bool               // clients report no requests in progress
	rest    map[string]float64 // requests in progress that were rounded off
}

func newQueued(t *testing.T, declared float64, trust isobar.CapacityTrust) *queued {
	t.Helper()
	return &queued{loop: twoZones(t, declared, &isobar.Service{CapacityTrust: trust}), serves: map[string]float64{"us/a": 500, "us/b": 1000}, rest: map[string]float64{}}
}

// landed is what one window at a rate comes to: successes/s, and requests in
// progress. A request takes 20 ms.
func (c *queued) landed(z string, rate float64) (served, inProgress float64) {
	capacity := c.serves[z]
	used := rate / capacity
	n := rate * (0.02 + c.slow[z])
	if used < 1 {
		return rate * (1 - c.fails[z]), n + 0.6*math.Pow(used, math.Sqrt(2*(capacity*0.02+1)))/(1-min(0.98, used))
	}
	return 0.9 * capacity, 0.7 * rate
}

// tick lets an interval pass in which three clients in us/a send what they are
// told.
func (c *queued) tick(rate float64) {
	c.t.Helper()
	opened := c.now
	c.now = c.now.Add(interval)
	sr := load.ServiceReport{Service: "checkout", Interval: interval}
	for _, z := range []string{"us/a", "us/b"} {
		share := 0.0
		if a := c.plan.Assignment("checkout", loc("us/a")); a != nil {
			share = a.Share(loc(z))
		}
		served, inProgress := c.landed(z, rate*share)
		if z == "us/b" {
			inProgress += rate * share * isobar.SameRegionMS / 1000
		}
		n := uint64(rate * share * interval.Seconds() / 3)
		ok := min(n, uint64(served*interval.Seconds()/3))
		if c.mute {
			inProgress = 0
		}
		each := math.Floor((inProgress + c.rest[z]) / 3)
		c.rest[z] += inProgress - 3*each
		sr.Localities = append(sr.Localities, load.LocalityReport{
			Locality: new(loc(z)), Issued: n, HasIssued: true, Succeeded: ok, Errors: n - ok, InProgress: uint32(each),
		})
	}
	var windows []load.StreamWindow
	for i := range load.StreamID(cmp.Or(c.clients, 3)) {
		windows = append(windows, load.StreamWindow{
			Stream: i + 1, Opened: opened, Node: load.Node{ID: "n", Cluster: "web", Locality: loc("us/a"), Agent: load.AgentEnvoy},
			Reports: []load.Report{{Arrived: c.now, Services: []load.ServiceReport{sr}}},
		})
	}
	c.turn(c.decider.Tick, windows...)
}

func (c *queued) capacity(z string) plan.CapacityExplained {
	c.t.Helper()
	s, _ := c.plan.Service("checkout")
	for i := range s.Sites {
		if x := s.Site(i).Capacity(); x.Locality == loc(z) {
			return x
		}
	}
	c.t.Fatalf("no %s", z)
	return plan.CapacityExplained{}
}

func (c *queued) planned(z string) float64 {
	s, _ := c.plan.Service("checkout")
	for i := range s.Sites {
		if s.Sites[i].Group.Locality == loc(z) {
			return s.Result.Load[i]
		}
	}
	return math.NaN()
}

// A zone serves half of what is declared. Who trusts declarations is told, and
// no more; who trusts requests gets a plan that the zone can carry.
func TestWrongDeclarationIsToldAndMended(t *testing.T) {
	for _, trust := range []isobar.CapacityTrust{"", isobar.TrustDeclared, isobar.TrustObserved} {
		c := newQueued(t, 1000, trust)
		told := false
		for range 60 {
			c.tick(1100)
			if v := c.plan.Violations; len(v) > 0 {
				t.Fatal(v)
			}
			if a := c.capacity("us/a"); a.Contradicted {
				told = true
				if a.High > 800 || a.Low > 500 || a.High < 500 {
					t.Errorf("trust %q: told is %.0f to %.0f, the truth is 500", trust, a.Low, a.High)
				}
				s, _ := c.plan.Service("checkout")
				if w := plan.Texts(plan.Contradictions(s)); trust.Observed() {
					if len(w) != 0 {
						t.Errorf("what the plan goes by anyway needs no attention: %q", w)
					}
				} else if len(w) != 1 || !strings.Contains(w[0], "us/a") || !strings.Contains(w[0], "declared 1000/s; from requests") {
					t.Errorf("trust %q: contradictions %q", trust, w)
				}
			}
		}
		if !told {
			t.Errorf("trust %q: nobody is told: %+v", trust, c.capacity("us/a"))
		}
		got := c.planned("us/a")
		switch {
		case !trust.Observed() && got < 500:
			t.Errorf("trust %q: %.0f/s are planned for us/a, want what is declared to allow it", trust, got)
		case trust.Observed() && (got > 500 || got < 200):
			t.Errorf("trust %q: %.0f/s are planned for us/a, which serves 500", trust, got)
		}
	}
}

// With what is declared right, plans follow it at every load.
func TestRightDeclarationStays(t *testing.T) {
	for _, rate := range []float64{100, 400, 800, 1200} {
		c := newQueued(t, 1000, isobar.TrustObserved)
		c.serves["us/a"] = 1000
		for range 60 {
			c.tick(rate)
		}
		for _, z := range []string{"us/a", "us/b"} {
			x := c.capacity(z)
			if x.Contradicted || x.InUse < 850 || x.InUse > 1500 {
				t.Errorf("at %.0f/s: the plan goes by %.0f for %s, want about 1000; %+v", rate, x.InUse, z, x)
			}
		}
	}
}

// Two zones are declared rightly, and us/a is slow or fails whatever its load: as
// much goes to us/b as fits there, and no more than the ceiling allows. Who trusts
// declarations keeps us/a full.
func TestSlowAndFailingZonesGetLess(t *testing.T) {
	for name, fault := range map[string]func(*queued){
		"slow":    func(c *queued) { c.slow = map[string]float64{"us/a": 0.1} },
		"failing": func(c *queued) { c.fails = map[string]float64{"us/a": 0.3} },
	} {
		for _, trust := range []isobar.CapacityTrust{isobar.TrustDeclared, isobar.TrustObserved} {
			c := newQueued(t, 1000, trust)
			c.serves["us/a"] = 1000
			for tick := range 80 {
				if tick == 20 {
					fault(c)
				}
				c.tick(900)
				if v := c.plan.Violations; len(v) > 0 {
					t.Fatal(v)
				}
			}
			a, b := c.planned("us/a"), c.planned("us/b")
			if trust.Observed() && (a > 350 || b < 550) {
				t.Errorf("%s: %.0f/s are planned for us/a and %.0f/s for us/b, want most in us/b", name, a, b)
			}
			if !trust.Observed() && a < 450 {
				t.Errorf("%s: %.0f/s are planned for us/a, want it to keep what its declared capacity allows", name, a)
			}
		}
	}
}

// TestObserveStaysWhatRequestsExperience asserts that in mode observe every request stays in
// its own zone, and in mode bounded within the bound around it, while the zone is overloaded,
// slow and fails, with the capacity that requests tell in use.
func TestObserveStaysWhatRequestsExperience(t *testing.T) {
	for mode, most := range map[isobar.Mode]float64{isobar.ModeObserve: 0, isobar.ModeBounded: 0.2} {
		c := newQueued(t, 1000, isobar.TrustObserved)
		c.loop = twoZones(t, 1000, &isobar.Service{CapacityTrust: isobar.TrustObserved, Mode: mode, MaxShift: most})
		c.slow, c.fails = map[string]float64{"us/a": 0.2}, map[string]float64{"us/a": 0.3}
		for i := range 60 {
			c.tick(700)
			if a := c.plan.Assignment("checkout", loc("us/a")); a != nil && 1-a.Share(loc("us/a")) > most+1e-3 {
				t.Fatalf("mode %s, tick %d: %.3f of the requests leave their zone, at most %v may", mode, i, 1-a.Share(loc("us/a")), most)
			}
		}
	}
}

// Clients that report no requests in progress tell nothing, and that is said.
func TestMuteFleetCantTell(t *testing.T) {
	c := newQueued(t, 1000, isobar.TrustObserved)
	c.mute = true
	for range 20 {
		c.tick(300)
	}
	x := c.capacity("us/a")
	if x.Known || x.InUse != 1000 || !strings.Contains(x.String(), "inconclusive") {
		t.Errorf("%q, the plan goes by %.0f", x.String(), x.InUse)
	}
}

// What requests told is there again after a restart.
func TestObservedCapacitySurvivesARestart(t *testing.T) {
	c := newQueued(t, 1000, isobar.TrustObserved)
	for range 40 {
		c.tick(650)
	}
	before := c.capacity("us/a")
	data, err := json.Marshal(c.plan.Save())
	if err != nil {
		t.Fatal(err)
	}
	var saved plan.Saved
	if err := json.Unmarshal(data, &saved); err != nil {
		t.Fatal(err)
	}
	revived, err := plan.Restore(&saved, c.top, health.NewTable(nil), c.now, saved.Version+1)
	if err != nil {
		t.Fatal(err)
	}
	c.plan, c.decider = revived, plan.NewDecider(interval, saved.Demand(), c.now)
	after := c.capacity("us/a")
	if after.Known != before.Known || math.Abs(after.Low-before.Low) > 1 || math.Abs(after.High-before.High) > 1 || math.Abs(after.InUse-before.InUse) > 20 {
		t.Errorf("after a restart: %+v, want %+v", after, before)
	}
	for range 5 {
		c.tick(650)
	}
	if again := c.capacity("us/a"); again.InUse > 1.3*before.InUse || again.InUse < before.InUse/1.3 {
		t.Errorf("five ticks after a restart the plan goes by %.0f, want about %.0f", again.InUse, before.InUse)
	}
}

// Where nothing is declared, requests tell as well.
func TestUndeclaredCapacityIsObserved(t *testing.T) {
	c := newQueued(t, 0, isobar.TrustObserved)
	for range 100 {
		c.tick(1100)
		if v := c.plan.Violations; len(v) > 0 {
			t.Fatal(v)
		}
	}
	if got := c.planned("us/a"); got > 500 {
		t.Errorf("%.0f/s are planned for us/a, which serves 500; %+v", got, c.capacity("us/a"))
	}
}

// A zone declares half of what it serves, and the nearest other one is slower to reach:
// while requests do not queue the zone gets more than it declares.
func TestLowDeclarationIsRaised(t *testing.T) {
	c := newQueued(t, 500, isobar.TrustObserved)
	c.serves = map[string]float64{"us/a": 1000, "us/b": 1000}
	for range 80 {
		c.tick(650)
		if v := c.plan.Violations; len(v) > 0 {
			t.Fatal(v)
		}
	}
	if a := c.capacity("us/a"); a.InUse < 600 || a.InUse > 1250 {
		t.Errorf("the plan goes by %.0f, want more than the 500 that are declared and about the 1000 that are true: %+v", a.InUse, a)
	}
}

// Once requests tell the capacity of one locality, the others of the service get what they
// make likely: beside a queue, a locality without one would look free.
func TestUndeclaredLocalitiesGetACapacityTogether(t *testing.T) {
	c := newQueued(t, 0, isobar.TrustObserved)
	for range 100 {
		c.tick(1100)
		a, b := c.capacity("us/a"), c.capacity("us/b")
		s, _ := c.plan.Service("checkout")
		if len(s.Observed) == 2 && (s.Observed[0].InUse > 0) != (s.Observed[1].InUse > 0) {
			t.Fatalf("only one has a capacity: %+v, %+v", a, b)
		}
	}
	if a := c.capacity("us/a"); !(a.InUse > 0) {
		t.Errorf("none has a capacity: %+v", a)
	}
}

// What a client says that came a moment ago drops nobody's requests, and what an
// overload needs is dropped whatever newcomers say.
func TestNewcomersRaiseNoDrop(t *testing.T) {
	for _, tc := range []struct {
		name     string
		rate     float64 // requests/s of each of the 90 honest clients
		account  func(i int) string
		liars    int
		lie      float64 // requests/s of each
		dropping bool    // before
	}{
		{"one", 20, func(int) string { return "address 192.0.2.1" }, 1, 58_000, false},
		{"20 of an address each", 20, func(i int) string { return fmt.Sprint("address 192.0.2.", i) }, 20, 58_000, false},
		{"one, in overload", 60, func(int) string { return "address 192.0.2.1" }, 1, 58_000, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			top := testhelp.FourZones(t)
			top.Services[0].MaxShed = 0.5
			d := plan.NewDecider(interval, nil, t0)
			now := t0
			var p *plan.Plan
			tick := func(liars int) float64 {
				opened := now
				now = now.Add(interval)
				turn := &plan.Turn{Now: now, Interval: interval, Topology: top, Health: health.NewTable(nil), Previous: p, Version: 1}
				if p != nil {
					turn.Version = p.Version + 1
				}
				for i := range 90 + liars {
					rate, account, at := tc.rate, fmt.Sprint("address 10.0.0.", i), loc([]string{"us/a", "us/b", "eu/a"}[i%3])
					if i >= 90 {
						rate, account, at = tc.lie, tc.account(i-90), loc("us/a")
					}
					turn.Subscribed = append(turn.Subscribed, load.Subscription{Service: "checkout", Source: at, Streams: 1, AckedAt: t0})
					n := uint64(rate * interval.Seconds())
					sr := load.ServiceReport{Service: "checkout", Interval: interval, Localities: []load.LocalityReport{{Locality: &at, Issued: n, HasIssued: true, Succeeded: n}}}
					turn.Windows = append(turn.Windows, load.StreamWindow{
						Stream: load.StreamID(i + 1), Account: account, Opened: opened, Node: load.Node{ID: fmt.Sprint(i), Cluster: "web", Locality: at, Agent: load.AgentEnvoy},
						Reports: []load.Report{{Arrived: now, Services: []load.ServiceReport{sr}}},
					})
				}
				next, err := d.Tick(turn)
				if err != nil {
					t.Fatal(err)
				}
				p = next
				s, _ := p.Service("checkout")
				return s.Result.Drop
			}
			before := 0.0
			for range 40 {
				before = tick(0)
			}
			if (before > 0) != tc.dropping {
				t.Fatalf("without liars %.3f is dropped", before)
			}
			for k := range 11 {
				if drop := tick(tc.liars); drop > before {
					t.Fatalf("after %d reports of liars %.3f is dropped, %.3f before", k+1, drop, before)
				}
			}
		})
	}
}

// What fails in a window may have been issued in the one before it: the part of the
// requests that fails is of the attempts that ended, and never more than all.
func TestFailuresAreAtMostAll(t *testing.T) {
	b, c := isobar.MustLocality("us/b"), isobar.MustLocality("us/c")
	for _, tt := range []struct {
		name   string
		landed []load.LandedLoad
		want   []string
	}{
		{"in order", []load.LandedLoad{{Locality: b, Issued: 100, Succeeded: 99.5, Errors: 0.5}}, nil},
		{"some", []load.LandedLoad{{Locality: b, Issued: 100, Succeeded: 95, Errors: 5}}, []string{
			"5% of the requests fail: most of them from us/b to us/b, where 5 of 100 requests/s do",
		}},
		{"late errors", []load.LandedLoad{{Locality: b, Issued: 10, Errors: 40}, {Locality: c, Issued: 40, Succeeded: 40}}, []string{
			"50% of the requests fail: most of them from us/b to us/b, where 40 of 40 requests/s do",
			"all requests to us/b fail: 40/s, and none succeeds",
		}},
		{"nothing issued", []load.LandedLoad{{Locality: b, Errors: 40}}, []string{
			"100% of the requests fail: most of them from us/b to us/b, where 40 of 40 requests/s do",
			"all requests to us/b fail: 40/s, and none succeeds",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &plan.Service{Load: &load.ServiceLoad{Sources: []load.SourceLoad{{Source: b, Window: 2 * time.Second, Landed: tt.landed}}}}
			if got := plan.Texts(s.Failures()); strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// What was sent to a locality before it was removed from the configuration is told no more.
func TestFailuresOfARemovedLocality(t *testing.T) {
	b, gone := isobar.MustLocality("us/b"), isobar.MustLocality("us/gone")
	futile := load.Futile{Attempts: 20, Failed: 20}
	s := &plan.Service{
		Spec: &isobar.Service{Localities: []isobar.ServiceLocality{{Locality: b}}},
		Load: &load.ServiceLoad{Futile: []load.SiteFutile{{Futile: futile, Locality: b}, {Futile: futile, Locality: gone}}},
	}
	if got := strings.Join(plan.Texts(s.Failures()), "\n"); !strings.HasPrefix(got, "all requests to us/b fail") || strings.Contains(got, "us/gone") {
		t.Errorf("got %s", got)
	}
}

// Failures that come and go are told until ten reports in a row show none: clients
// eject a broken endpoint, and try it again.
func TestFailuresThatComeAndGo(t *testing.T) {
	c := newQueued(t, 1000, "")
	c.serves["us/a"], c.fails = 1000, map[string]float64{}
	failures := func() string {
		s, _ := c.plan.Service("checkout")
		return strings.Join(plan.Texts(s.Failures()), "; ")
	}
	c.ticks(6, 600)
	if got := failures(); got != "" {
		t.Fatalf("before: %s", got)
	}
	for _, gap := range []int{9, 1, 6, 9} {
		c.fails["us/a"] = 0.2
		c.ticks(1, 600)
		if got := failures(); !strings.Contains(got, "% of the requests fail: most of them") {
			t.Errorf("while they fail: %q", got)
		}
		c.fails["us/a"] = 0
		for i := range gap {
			c.ticks(1, 600)
			if got := failures(); !strings.Contains(got, "% of the requests in three of the last ten reports failed") {
				t.Errorf("%d reports after a burst, %d before the next: %q", i+1, gap-i, got)
			}
		}
	}
	c.ticks(1, 600)
	if got := failures(); got != "" {
		t.Errorf("ten reports later: %s", got)
	}
}

// What fails by chance, less than 1% of the requests on average, is not told of as a
// burst.
func TestFailuresByChance(t *testing.T) {
	for _, tt := range []struct {
		attempts, failed float64
		want             bool
	}{
		{400, 4, false}, {400, 6, false}, {400, 7, true}, {10_000, 100, false}, {10_000, 120, true}, {50, 1, false},
	} {
		s := &plan.Service{Load: &load.ServiceLoad{WorstRecent: load.Outcomes{Attempts: tt.attempts, Failed: tt.failed}, Outcomes: load.Outcomes{Attempts: 1000}}}
		if got := len(s.Failures()) > 0; got != tt.want {
			t.Errorf("%g of %g failed: told %v, want %v", tt.failed, tt.attempts, got, tt.want)
		}
	}
}

// A locality serves where nearly all requests that clients send there succeed.
func TestServing(t *testing.T) {
	landed := func(at string, issued, errors, succeeded float64) load.LandedLoad {
		return load.LandedLoad{Locality: loc(at), Issued: issued, Errors: errors, Succeeded: succeeded}
	}
	for name, tc := range map[string]struct {
		a, b load.LandedLoad // from two sources
		want bool
	}{
		"in order":               {landed("us/a", 50, 0, 50), landed("us/a", 50, 2, 48), true},
		"a few are on their way": {landed("us/a", 50, 0, 48), landed("us/a", 50, 0, 47), true},
		"one of two fails":       {landed("us/a", 50, 50, 0), landed("us/a", 50, 0, 50), false},
		"nothing is answered":    {landed("us/a", 50, 0, 0), landed("us/a", 50, 0, 0), false},
		"hardly any request":     {landed("us/a", 0.5, 0, 0.5), landed("us/a", 0.5, 0, 0.5), false},
		"refused connections":    {landed("us/a", 20, 20, 0), landed("us/a", 50, 0, 50), false},
	} {
		s := &plan.Service{Load: &load.ServiceLoad{Sources: []load.SourceLoad{
			{Source: loc("us/a"), Window: interval, Landed: []load.LandedLoad{tc.a}}, {Source: loc("us/b"), Window: interval, Landed: []load.LandedLoad{tc.b}},
		}}}
		if got := len(s.Serving()) == 1; got != tc.want {
			t.Errorf("%s: serving %v, want %v", name, got, tc.want)
		}
	}
	if got := (&plan.Service{}).Serving(); got != nil {
		t.Errorf("without load %v serve", got)
	}
}
