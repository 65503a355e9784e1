package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

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
		s := &plan.Service{Load: &load.ServiceLoad{Lately: load.Outcomes{Attempts: tt.attempts, Failed: tt.failed}, Outcomes: load.Outcomes{Attempts: 1000}}}
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
