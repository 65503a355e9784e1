package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
)

// vetInput is a service of two sites that can carry 800 requests/s each, of
// which 700 go to the first. Next the solver wants half of them elsewhere.
func vetInput() assign.Input {
	svc := &isobar.Service{Name: "checkout"}
	var sites []assign.Site
	for _, name := range []string{"us/a", "us/b"} {
		l := isobar.MustLocality(name)
		svc.Localities = append(svc.Localities, isobar.ServiceLocality{Locality: l, Endpoints: []isobar.Endpoint{{Address: name}}})
		sites = append(sites, assign.Site{
			Group:   &isobar.EndpointGroup{Locality: l, Endpoints: []isobar.WeightedEndpoint{{Address: name, Weight: 1, Health: isobar.Healthy}}},
			Nominal: 1000, Capacity: 1000, Ceiling: 0.8, Scale: 1,
		})
	}
	in := assign.Input{Service: svc, Sites: sites, Sources: []assign.Source{{
		Locality: isobar.MustLocality("us/a"), Demand: 700, Distance: []float64{0, 1}, Target: []float64{1, 0},
	}}}
	in.Previous = assign.Assign(in)
	in.Sources = slices.Clone(in.Sources)
	in.Sources[0].Target = []float64{0.5, 0.5}
	return in
}

// shifted sends a part of the first site's traffic to the second.
func shifted(r *assign.Result, units uint32) *assign.Result {
	out := *r
	out.Sources, out.Load = slices.Clone(r.Sources), slices.Clone(r.Load)
	s := &out.Sources[0]
	share := float64(units) / isobar.WeightScale
	s.Shares = []float64{s.Shares[0] - share, s.Shares[1] + share}
	out.Load[0] -= share * s.Demand
	out.Load[1] += share * s.Demand
	a := *s.Assignment
	a.Priorities = [][]isobar.LocalityWeight{slices.Clone(a.Priorities[0])}
	a.Priorities[0][0].Weight -= units
	a.Priorities[0][1].Weight += units
	s.Assignment = &a
	return &out
}

func TestARefusedPlanFallsBackToWhatWasPublished(t *testing.T) {
	in := vetInput()
	now := time.Unix(1, 0)
	result, violations := vet(in, shifted(assign.Assign(in), 5000), now)
	if len(violations) != 1 || violations[0].Rule != invariant.RuleStep || !violations[0].At.Equal(now) {
		t.Fatalf("violations: %+v", violations)
	}
	// 60 points moved, of which 10 are allowed.
	if r := violations[0].Rate; r < 349 || r > 351 {
		t.Errorf("%v requests/s break the rule, want 350", r)
	}
	s := &result.Sources[0]
	if s.Assignment != in.Previous.Sources[0].Assignment {
		t.Errorf("the fallback is not what was published: %v", s.Shares)
	}
	if !slices.ContainsFunc(s.Reasons, func(r assign.Reason) bool {
		return r.Code == assign.ReasonFallback && strings.Contains(r.Text, violations[0].Text)
	}) {
		t.Errorf("the reasons do not tell of the fallback: %v", s.Reasons)
	}
}

// Where what was published breaks the rules as well, the smaller harm counts.
func TestAFallbackThatIsNoBetterIsNotTaken(t *testing.T) {
	in := vetInput()
	// Operators moved the endpoint of one site to the other as well.
	in.Sites = slices.Clone(in.Sites)
	twice := *in.Sites[1].Group
	twice.Endpoints = in.Sites[0].Group.Endpoints
	in.Sites[1].Group = &twice
	decided := assign.Assign(in)
	result, violations := vet(in, decided, time.Time{})
	if result != decided || len(violations) == 0 {
		t.Errorf("fell back to an answer with the same fault: %v", violations)
	}
	// One that breaks more rules is not published nevertheless.
	result, more := vet(in, shifted(decided, 5000), time.Time{})
	if result.Sources[0].Shares[0] != 1 || len(more) <= len(violations)+1 {
		t.Errorf("shares %v after %v", result.Sources[0].Shares, more)
	}
}
