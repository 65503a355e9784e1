package admin_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestEveryCodeIsListed: the reference page has each code with its severity and its
// meaning, in the order of the code, and no other.
func TestEveryCodeIsListed(t *testing.T) {
	data, err := os.ReadFile("../../docs/reference/attention.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(data), "| Code | Severity | Meaning |\n|---|---|---|\n")
	if !found {
		t.Fatal("docs/reference/attention.md has no table of codes")
	}
	var want strings.Builder
	seen := map[admin.Code]bool{}
	for _, c := range admin.Codes {
		if seen[c.Code] {
			t.Errorf("%s is listed twice", c.Code)
		}
		seen[c.Code] = true
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", c.Code, c.Severity, c.Meaning)
	}
	if table != want.String() {
		t.Errorf("the table of codes in docs/reference/attention.md should be\n%s", want.String())
	}
}

// TestAttentionOfAService: what needs attention of one service, and whether that one is in
// order.
func TestAttentionOfAService(t *testing.T) {
	of := func(service string) admin.Attention {
		return admin.NewAttention(admin.RequestsFailing, "%s", service).Of(service)
	}
	srv := start(t, newWorld(), func(o *admin.Options) {
		fleetOf(o).clients = func() []admin.Client { return nil }
		processOf(o).attention = func() []admin.Attention {
			return []admin.Attention{of("legacy"), admin.NewAttention(admin.NoLoad, "all")}
		}
	})
	var s admin.Status
	do(t, srv, http.MethodGet, "/v1/status?service=legacy", "").decode(t, &s)
	if s.OK || len(s.Attention) != 1 || s.Attention[0].Service != "legacy" {
		t.Errorf("%+v", s.Attention)
	}
	if a := do(t, srv, http.MethodGet, "/v1/status?service=nobody", ""); a.code != http.StatusNotFound {
		t.Errorf("a service that does not exist: %d", a.code)
	}
}

// TestAttentionIsOrdered: the most severe comes first, whoever told of it, notices
// change nothing about order, and what is too much to read is counted.
func TestAttentionIsOrdered(t *testing.T) {
	ask := func(items ...admin.Attention) (s admin.Status) {
		srv := start(t, newWorld(), func(o *admin.Options) {
			fleetOf(o).clients = func() []admin.Client { return nil }
			processOf(o).attention = func() []admin.Attention { return items }
		})
		do(t, srv, http.MethodGet, "/v1/status", "").decode(t, &s)
		return s
	}
	notice := admin.NewAttention(admin.ServicePaused, "n")
	if s := ask(notice); !s.OK || len(s.Attention) != 1 {
		t.Errorf("a notice alone: %+v", s.Attention)
	}
	warning, critical := admin.NewAttention(admin.NoLoad, "w"), admin.NewAttention(admin.RequestsFailing, "c")
	s := ask(notice, warning, critical)
	if got := admin.AttentionTexts(s.Attention); s.OK || !slices.Equal(got, []string{"c", "w", "n"}) {
		t.Errorf("got %q", got)
	}
	if s := ask(slices.Repeat([]admin.Attention{warning}, 130)...); len(s.Attention) != 100 || s.More != 30 {
		t.Errorf("%d are listed, %d more", len(s.Attention), s.More)
	}
}

// TestCommandsAreSafeToPaste: what strangers call themselves stays one word.
func TestCommandsAreSafeToPaste(t *testing.T) {
	for word, want := range map[string]string{
		"checkout": "checkout", "us-east/b": "us-east/b", "$(reboot)": "'$(reboot)'", "a'b; c": `'a'\''b; c'`, "-o": "'-o'", "": "''", "a\nb": "'a b'",
	} {
		if got := admin.NewAttention(admin.NoLoad, "x").See("isobar explain %s", word).Next; got != "isobar explain "+want {
			t.Errorf("%q: %s", word, got)
		}
	}
}

// attends returns the item with a code; without one the test fails.
func attends(t *testing.T, s admin.Status, code admin.Code) admin.Attention {
	t.Helper()
	i := slices.IndexFunc(s.Attention, func(a admin.Attention) bool { return a.Code == code })
	if i < 0 {
		t.Errorf("%s is not among\n%s", code, strings.Join(admin.AttentionTexts(s.Attention), "\n"))
		return admin.Attention{}
	}
	return s.Attention[i]
}

// TestAttentionIsWhole: a sentence with long names is shown to its end, and one that is cut
// shows that it is.
func TestAttentionIsWhole(t *testing.T) {
	for _, tc := range []struct {
		name string
		want string
	}{
		{strings.Repeat("n", 400), strings.Repeat("n", 400) + " is not known"},
		{strings.Repeat("n", 2000), strings.Repeat("n", 999) + "…"},
	} {
		if got := admin.NewAttention(admin.LocalityUnknown, "%s is not known", tc.name).Text; got != tc.want {
			t.Errorf("a name of %d characters: %d characters that end with %q", len(tc.name), len(got), got[max(0, len(got)-20):])
		}
	}
}

// TestAttentionToThePlan: what a plan, the loop and the health tables tell, each alone.
func TestAttentionToThePlan(t *testing.T) {
	legacy := func(change func(*plan.Service)) func(*world, *admin.Options) {
		return func(w *world, _ *admin.Options) { change(w.current.Services[0]) }
	}
	reports := func(r health.ServiceReport) func(*world, *admin.Options) {
		return func(_ *world, o *admin.Options) {
			r.Service = "legacy"
			healthOf(o).health = func(context.Context, string) ([]health.ServiceReport, error) { return []health.ServiceReport{r}, nil }
		}
	}
	for _, tt := range []struct {
		code     admin.Code
		severity admin.Severity
		happens  func(*world, *admin.Options)
	}{
		{admin.LoopStalled, admin.Critical, func(w *world, _ *admin.Options) { w.beat = time.Now().Add(-time.Hour) }},
		{admin.LoopSilent, admin.Critical, func(_ *world, o *admin.Options) {
			healthOf(o).health = func(context.Context, string) ([]health.ServiceReport, error) { return nil, context.DeadlineExceeded }
		}},
		{admin.Stopping, admin.Warning, func(_ *world, o *admin.Options) { processOf(o).stopping = func() bool { return true } }},
		{admin.NoPlan, admin.Warning, func(w *world, _ *admin.Options) { w.current = nil }},
		{admin.PlanRefused, admin.Warning, func(w *world, _ *admin.Options) {
			w.current.Violations = []invariant.Violation{{Service: "legacy", Rule: "weights", Text: "they are gone"}}
		}},
		{admin.WeightsHeld, admin.Warning, legacy(func(s *plan.Service) { s.Hold = "too few reports" })},
		{admin.SharesOscillate, admin.Warning, legacy(func(s *plan.Service) { s.Damping = &plan.Damping{Level: 1, Left: 30, Amplitude: 0.2, Ticks: 4} })},
		{admin.ModeRolledBack, admin.Warning, legacy(func(s *plan.Service) {
			s.Rollout = &plan.Rollout{Mode: isobar.ModeObserve, Back: true, Why: "requests fail"}
		})},
		{admin.ShortLifetime, admin.Warning, legacy(func(s *plan.Service) { s.Spec.Assignment.ResourceTTL = time.Second })},
		{admin.LocalityDrained, admin.Warning, legacy(func(s *plan.Service) { s.Sites[0].Drained = true })},
		{admin.LocalityUnhealthy, admin.Warning, legacy(func(s *plan.Service) { s.Sites[0].Group.Endpoints[0].Health = isobar.Unhealthy })},
		{admin.CheckersEnded, admin.Warning, reports(health.ServiceReport{Suspicion: &health.Suspicion{Ends: 3, Checkers: []string{"c"}}})},
		{admin.CheckersShort, admin.Warning, reports(health.ServiceReport{Shortfalls: []health.Shortfall{{Why: "no checker is connected"}}})},
		{admin.ProbePathFailing, admin.Warning, reports(health.ServiceReport{Summary: health.Summary{Divided: 1}})},
		{admin.AllEndpointsDown, admin.Critical, reports(health.ServiceReport{Summary: health.Summary{FailOpen: true}})},
		{admin.MassFailureHeld, admin.Critical, reports(health.ServiceReport{Alarm: &health.Alarm{Why: "4 of 4 endpoints"}})},
		{admin.CertificateExpired, admin.Critical, func(_ *world, o *admin.Options) {
			processOf(o).certificates = func() []admin.Certificate {
				return []admin.Certificate{{Name: "xds", NotAfter: time.Now().Add(-time.Hour)}}
			}
		}},
		{admin.CertificateEnds, admin.Warning, func(_ *world, o *admin.Options) {
			processOf(o).certificates = func() []admin.Certificate {
				return []admin.Certificate{{Name: "xds", NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Minute)}}
			}
		}},
	} {
		t.Run(string(tt.code), func(t *testing.T) {
			w := newWorld()
			srv := start(t, w, func(o *admin.Options) {
				fleetOf(o).clients = func() []admin.Client { return nil }
				tt.happens(w, o)
			})
			var s admin.Status
			do(t, srv, http.MethodGet, "/v1/status", "").decode(t, &s)
			if a := attends(t, s, tt.code); a.Severity != tt.severity || s.OK {
				t.Errorf("ok %v, %+v", s.OK, a)
			}
		})
	}
}

// TestOneEndpointWithoutCheckers: an item about one endpoint speaks of one.
func TestOneEndpointWithoutCheckers(t *testing.T) {
	for want, shortfalls := range map[string][]health.Shortfall{
		"no checker probes 1 endpoint: no checker is connected":                       {{Why: "no checker is connected"}},
		"no checker probes 2 endpoints: no checker is connected":                      {{Why: "no checker is connected"}, {Why: "no checker is connected"}},
		"1 endpoint has fewer checkers than configured, or checkers in fewer zones":   {{Checkers: 1}},
		"2 endpoints have fewer checkers than configured, or checkers in fewer zones": {{Checkers: 1}, {Checkers: 2}},
	} {
		srv := start(t, newWorld(), func(o *admin.Options) {
			healthOf(o).health = func(context.Context, string) ([]health.ServiceReport, error) {
				return []health.ServiceReport{{Service: "legacy", Shortfalls: shortfalls}}, nil
			}
		})
		var s admin.Status
		do(t, srv, http.MethodGet, "/v1/status", "").decode(t, &s)
		if a := attends(t, s, admin.CheckersShort); !strings.Contains(a.Text, want) {
			t.Errorf("%q, want %q", a.Text, want)
		}
	}
}

// TestUnhealthyEndpointsAreExplained: the command that tells more of endpoints that are down
// answers, also where the service has no health checks.
func TestUnhealthyEndpointsAreExplained(t *testing.T) {
	for name, tt := range map[string]struct {
		checks []isobar.HealthCheck
		want   string
	}{
		"health checks": {[]isobar.HealthCheck{{}}, "isobar health legacy"},
		"none":          {nil, "isobar explain legacy"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			svc := w.current.Services[0]
			spec := *svc.Spec
			spec.HealthChecks, svc.Spec = tt.checks, &spec
			svc.Sites[0].Group.Endpoints = []isobar.WeightedEndpoint{
				{Address: "127.0.0.1:1", Weight: 1, Health: isobar.Healthy}, {Address: "127.0.0.1:2", Weight: 1, Health: isobar.Unhealthy},
			}
			srv := start(t, w, nil)
			var s admin.Status
			do(t, srv, http.MethodGet, "/v1/status", "").decode(t, &s)
			if a := attends(t, s, admin.EndpointsUnhealthy); a.Next != tt.want || !strings.Contains(a.Text, "1 of 2 endpoints in us-east/b is unhealthy") {
				t.Errorf("%q, next: %q, want %q", a.Text, a.Next, tt.want)
			}
		})
	}
}

// TestOperatorsDrainIsNoFailure: where operators took every endpoint of a locality out of
// traffic, a notice says so and how to end it; where one is down by itself, it is a failure.
func TestOperatorsDrainIsNoFailure(t *testing.T) {
	const drained, down = "127.0.0.1:1", "127.0.0.1:2"
	at := isobar.MustLocality("us-east/b")
	for name, tt := range map[string]struct {
		said map[string]isobar.HealthStatus
		code admin.Code
		ok   bool
		want string
	}{
		"drained": {
			map[string]isobar.HealthStatus{drained: isobar.Draining, down: isobar.Draining}, admin.LocalityDrained, true,
			"legacy: us-east/b is drained by an operator since 1970-01-01T00:15:00Z (ann: kernel update): " +
				"`isobar health set legacy ADDRESS clear` ends this for an endpoint, POST /v1/undrain for all",
		},
		"also set unhealthy": {
			map[string]isobar.HealthStatus{drained: isobar.Draining, down: isobar.Unhealthy}, admin.LocalityDrained, true,
			"operators took all endpoints in us-east/b out of traffic since",
		},
		"one is down by itself": {map[string]isobar.HealthStatus{drained: isobar.Draining}, admin.LocalityUnhealthy, false, "no endpoint in us-east/b is healthy"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.current.Services[0].Sites[0].Group.Endpoints = []isobar.WeightedEndpoint{
				{Address: drained, Weight: 1, Health: isobar.Draining}, {Address: down, Weight: 1, Health: isobar.Unhealthy},
			}
			for address, status := range tt.said {
				w.said = append(w.said, isobar.HealthOverride{
					Service: "legacy", Address: address, Locality: at, Status: status, Since: connected, Who: "ann", Reason: "kernel update",
				})
			}
			srv := start(t, w, func(o *admin.Options) { fleetOf(o).clients = func() []admin.Client { return nil } })
			var s admin.Status
			do(t, srv, http.MethodGet, "/v1/status", "").decode(t, &s)
			if a := attends(t, s, tt.code); !strings.Contains(a.Text, tt.want) || (a.Severity == admin.Notice) != tt.ok || s.OK != tt.ok {
				t.Errorf("ok %v, %+v", s.OK, a)
			}
		})
	}
}
