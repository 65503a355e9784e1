package admin_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/health"
)

// TestPaths: endpoints that one zone sees down and others reach make a path, and nothing
// else does; services without any are not asked for.
func TestPaths(t *testing.T) {
	zone := isobar.MustLocality
	since := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	vote := func(from string, s isobar.HealthStatus, at time.Duration) health.Vote {
		return health.Vote{Checker: "in " + from, Zone: zone(from), Status: s, Since: since.Add(at), Fresh: true, Counts: true}
	}
	endpoint := func(address, in string, divided bool, zones []isobar.Locality, votes ...health.Vote) health.Verdict {
		return health.Verdict{Key: health.Key{Address: address}, Locality: zone(in), Divided: divided, Zones: zones, Votes: votes}
	}
	cut := []isobar.Locality{zone("us/a")}
	reports := map[string]health.ServiceReport{
		"cart": {Service: "cart", Summary: health.Summary{Divided: 2}, Endpoints: []health.Verdict{
			endpoint("1", "eu/a", true, cut, vote("us/a", isobar.Timeout, 3*time.Second), vote("eu/b", isobar.Healthy, 0), vote("ap/a", isobar.Healthy, 0)),
			endpoint("2", "eu/a", true, cut, vote("us/a", isobar.Timeout, time.Second), vote("eu/b", isobar.Healthy, 0)),
			endpoint("3", "eu/a", false, nil, vote("us/a", isobar.Timeout, 0), vote("eu/b", isobar.Timeout, 0)), // it is down for all
		}},
		"search": {Service: "search", Summary: health.Summary{Divided: 2}, Endpoints: []health.Verdict{
			endpoint("4", "eu/a", true, cut, vote("us/a", isobar.Unhealthy, time.Minute), vote("eu/b", isobar.Healthy, 0)),
			endpoint("5", "eu/b", true, cut, vote("us/a", isobar.Unhealthy, time.Minute), vote("us/a", isobar.Healthy, 0)), // zones disagree within themselves
			endpoint("6", "eu/c", true, []isobar.Locality{zone("us/a"), zone("us/b")},
				vote("us/a", isobar.Timeout, 0), vote("us/b", isobar.Timeout, 0), vote("eu/b", isobar.Healthy, 0)),
		}},
		"well": {Service: "well", Summary: health.Summary{Healthy: 9}},
	}
	var asked []string
	srv := start(t, newWorld(), func(o *admin.Options) {
		healthOf(o).overview = func(context.Context) ([]health.ServiceReport, error) {
			return []health.ServiceReport{reports["cart"], reports["search"], reports["well"]}, nil
		}
		healthOf(o).health = func(_ context.Context, service string) ([]health.ServiceReport, error) {
			asked = append(asked, service)
			return []health.ServiceReport{reports[service]}, nil
		}
	})
	var got admin.CheckerList
	a := do(t, srv, http.MethodGet, "/v1/checkers", "")
	a.decode(t, &got)
	if a.code != http.StatusOK || len(got.Checkers) != 0 || !slices.Equal(asked, []string{"cart", "search"}) {
		t.Fatalf("%d %s, asked for %v", a.code, a.body, asked)
	}
	if len(got.Paths) != 4 {
		t.Fatalf("%+v", got.Paths)
	}
	p := got.Paths[0]
	if p.From != zone("us/a") || p.To != zone("eu/a") || p.Endpoints != 3 || !slices.Equal(p.Services, []string{"cart", "search"}) ||
		!slices.Equal(p.Reached, []isobar.Locality{zone("ap/a"), zone("eu/b")}) || !p.Since.Equal(since.Add(time.Second)) {
		t.Errorf("%+v", p)
	}
	for _, p := range got.Paths[2:] { // two zones don't reach it, so that neither is named for the other
		if p.To != zone("eu/c") || !slices.Equal(p.Reached, []isobar.Locality{zone("eu/b")}) {
			t.Errorf("%+v", p)
		}
	}
	if p = got.Paths[1]; p.To != zone("eu/b") || p.Endpoints != 1 || len(p.Reached) != 0 {
		t.Errorf("%+v", p)
	}
}

// TestClientsOfAService: those that subscribe to it or ask for a name that does not exist.
func TestClientsOfAService(t *testing.T) {
	srv := start(t, newWorld(), func(o *admin.Options) {
		fleetOf(o).clients = func() []admin.Client {
			return []admin.Client{
				{ID: "a", Types: map[string]admin.ClientType{"eds": {Names: []string{"cart", "legacy"}}}},
				{ID: "b", Types: map[string]admin.ClientType{"eds": {Names: []string{"cart"}}}},
				{ID: "c", Missing: []admin.MissingService{{Name: "legacy"}}},
			}
		}
	})
	for service, want := range map[string]string{"legacy": "ac", "cart": "ab", "nobody": "", "": "abc"} {
		var got admin.ClientList
		do(t, srv, http.MethodGet, "/v1/clients?service="+service, "").decode(t, &got)
		ids := ""
		for i := range got.Clients {
			ids += got.Clients[i].ID
		}
		if ids != want {
			t.Errorf("of %q: %q, want %q", service, ids, want)
		}
	}
}

// TestPathsNeedAttention: paths on which probes fail are one thing to look at for the fleet, with
// the services, and one for each of these.
func TestPathsNeedAttention(t *testing.T) {
	divided := map[string]int{"cart": 2, "legacy": 1, "well": 0}
	srv := start(t, newWorld(), func(o *admin.Options) {
		fleetOf(o).clients = func() []admin.Client { return nil }
		healthOf(o).overview = func(context.Context) (out []health.ServiceReport, err error) {
			for _, name := range []string{"cart", "legacy", "well"} {
				out = append(out, health.ServiceReport{Service: name, Summary: health.Summary{Divided: divided[name]}})
			}
			return out, nil
		}
	})
	ask := func(query string) (found []admin.Attention) {
		var s admin.Status
		do(t, srv, http.MethodGet, "/v1/status"+query, "").decode(t, &s)
		for _, a := range s.Attention {
			if a.Code == admin.ProbePathFailing {
				found = append(found, a)
			}
		}
		return found
	}
	const rest = " that checkers in other zones reach: the path is broken, and Isobar does not move traffic away"
	for _, tt := range []struct{ query, service, text, next string }{
		{"", "", "checkers in some zones can't reach 3 endpoints of 2 services (cart, legacy)" + rest, "isobar health"},
		{"?service=legacy", "legacy", "legacy: checkers in some zones can't reach 1 endpoint" + rest, "isobar health legacy"},
	} {
		got := ask(tt.query)
		if len(got) != 1 || got[0].Service != tt.service || got[0].Text != tt.text || got[0].Next != tt.next {
			t.Errorf("%q: %+v", tt.query, got)
		}
	}
	divided["cart"] = 0
	if got := ask(""); len(got) != 1 || got[0].Service != "legacy" {
		t.Errorf("of one service: %+v", got)
	}
	divided["legacy"] = 0
	if got := ask("?service=legacy"); len(got) != 0 {
		t.Errorf("of none: %+v", got)
	}
}
