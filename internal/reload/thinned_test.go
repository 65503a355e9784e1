package reload

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
)

// sized is a service with so many endpoints in us/a and us/b, which alternate. Its addresses begin with
// the first one.
func sized(name string, first, n int, health isobar.HealthStatus) isobar.Service {
	at := []isobar.ServiceLocality{{Locality: isobar.Locality{Region: "us", Zone: "a"}}, {Locality: isobar.Locality{Region: "us", Zone: "b"}}}
	for i := range n {
		l := &at[i%2]
		l.Endpoints = append(l.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.0.0.%d:80", first+i), Health: health})
	}
	return isobar.Service{Name: name, Localities: at}
}

func sizes(services ...isobar.Service) *config.Live { return &config.Live{Services: services} }

// TestMostEndpointsOfAServiceAreHeld: a file that removes most endpoints of a service takes as much from
// its clients as one that removes localities.
func TestMostEndpointsOfAServiceAreHeld(t *testing.T) {
	checkout := func(n int) isobar.Service { return sized("checkout", 1, n, isobar.Unknown) }
	for name, row := range map[string]struct {
		before, after []isobar.Service
		want          string
	}{
		"nine of ten":         {[]isobar.Service{checkout(10)}, []isobar.Service{checkout(1)}, "9 of the 10 endpoints of service checkout"},
		"more than half":      {[]isobar.Service{checkout(10)}, []isobar.Service{checkout(4)}, "6 of the 10 endpoints of service checkout"},
		"half":                {[]isobar.Service{checkout(10)}, []isobar.Service{checkout(5)}, ""},
		"of the fewest":       {[]isobar.Service{checkout(6)}, []isobar.Service{checkout(2)}, "4 of the 6 endpoints of service checkout"},
		"of few":              {[]isobar.Service{checkout(5)}, []isobar.Service{checkout(2)}, ""},
		"other addresses":     {[]isobar.Service{checkout(10)}, []isobar.Service{sized("checkout", 100, 8, isobar.Unknown)}, ""},
		"marked before":       {[]isobar.Service{sized("checkout", 1, 10, isobar.Draining)}, []isobar.Service{checkout(2)}, ""},
		"marked":              {[]isobar.Service{checkout(10)}, []isobar.Service{sized("checkout", 1, 10, isobar.Unhealthy)}, ""},
		"degraded serve, too": {[]isobar.Service{sized("checkout", 1, 10, isobar.Degraded)}, []isobar.Service{checkout(2)}, "8 of the 10 endpoints of service checkout"},
		"of several": {
			[]isobar.Service{checkout(10), sized("cart", 1, 12, isobar.Unknown), sized("pay", 1, 8, isobar.Unknown)},
			[]isobar.Service{checkout(4), sized("cart", 1, 2, isobar.Unknown), sized("pay", 1, 8, isobar.Unknown)},
			"10 of the 12 endpoints of service cart, and more than half of those of 1 other service",
		},
	} {
		c := configurationOf(t, sizes(row.before...))
		if what := c.removal(sizes(row.after...), time.Now()); what != row.want {
			t.Errorf("%s: the change removes %q, want %q", name, what, row.want)
		}
	}
}

// TestEndpointsRemovedInStepsAreHeld: what changes remove within minutes counts together, also over
// a restart; one that removes nothing is taken nevertheless.
func TestEndpointsRemovedInStepsAreHeld(t *testing.T) {
	now := time.Now()
	step := func(n int) *config.Live { return sizes(sized("checkout", 1, n, isobar.Unknown)) }
	c := configurationOf(t, step(7))
	had, has := c.contentsOf(step(10)), c.contentsOf(step(7))
	c.held.recent.note(&had, &has, now)
	saved, err := json.Marshal(c.held.recent.saved())
	if err != nil {
		t.Fatal(err)
	}
	var read []SavedRemoval
	if err := json.Unmarshal(saved, &read); err != nil {
		t.Fatal(err)
	}
	for name, recent := range map[string]recentRemovals{"running": c.held.recent, "restarted": recentOf(read, now)} {
		c.held.recent = recent
		for _, row := range []struct {
			endpoints int
			later     time.Duration
			want      string
		}{
			{4, 0, "6 of the 10 endpoints of service checkout, together with earlier removals"},
			{4, removalMemory + time.Minute, ""},
			{5, 0, ""},
			{7, 0, ""},
			{8, 0, ""},
		} {
			if what := c.removal(step(row.endpoints), now.Add(row.later)); what != row.want {
				t.Errorf("%s: %d endpoints, %v later: the step removes %q, want %q", name, row.endpoints, row.later, what, row.want)
			}
		}
	}
	small := configurationOf(t, step(4)) // by a confirmed change; the next removes nothing
	small.held.recent = c.held.recent
	if what := small.removal(step(4), now); what != "" {
		t.Errorf("a change that keeps all endpoints removes %q", what)
	}
}

// TestServicesThatComeBackSmallAreHeld: a file that is written in parts lacks a service at first, and has some
// of its endpoints then; also over a restart.
func TestServicesThatComeBackSmallAreHeld(t *testing.T) {
	now := time.Now()
	others := []isobar.Service{sized("cart", 50, 4, isobar.Unknown), sized("search", 60, 4, isobar.Unknown), sized("users", 70, 4, isobar.Unknown)}
	with := func(n int) *config.Live {
		return sizes(append([]isobar.Service{sized("checkout", 1, n, isobar.Unknown)}, others...)...)
	}
	for name, gone := range map[string]*config.Live{"missing": sizes(others...), "without endpoints": with(0)} {
		c := configurationOf(t, gone)
		had, has := c.contentsOf(with(20)), c.contentsOf(gone)
		c.held.recent.note(&had, &has, now)
		c.held.recent = recentOf(c.held.recent.saved(), now)
		for n, want := range map[int]string{3: "17 of the 20 endpoints of service checkout, together with earlier removals", 10: "", 20: "", 0: ""} {
			if what := c.removal(with(n), now.Add(time.Minute)); what != want {
				t.Errorf("%s: back with %d endpoints: the change removes %q, want %q", name, n, what, want)
			}
		}
		if what := c.removal(with(3), now.Add(removalMemory+time.Minute)); what != "" {
			t.Errorf("%s: minutes later the change removes %q", name, what)
		}
	}
}

// TestEndpointsOfTheAPIComeAndGo: what programs write with the API may shrink at any time.
func TestEndpointsOfTheAPIComeAndGo(t *testing.T) {
	c := configurationOf(t, sizes())
	if _, err := c.registry.PutAll([]isobar.Service{sized("checkout", 1, 10, isobar.Unknown)}); err != nil {
		t.Fatal(err)
	}
	if what := c.Removes([]isobar.Service{sized("checkout", 1, 1, isobar.Unknown)}); what != "" {
		t.Errorf("a set with fewer endpoints removes %q", what)
	}
}
