package interop

import (
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
)

// The ways in which an Envoy gets its endpoints from Isobar.
const (
	adsStream = "ADS stream"
	adsDelta  = "ADS delta"
	restPolls = "REST"
	edsBeside = "EDS stream beside go-control-plane"
)

// matrix is an Isobar with Envoys that get their endpoints from it, each in
// another way.
type matrix struct {
	*isobar

	gateways []*gateway
	backends map[string]*webBackend
	names    map[string]string // of the backends, by address
}

// The services of the matrix.
var matrixServices = append([]string{"split", "weighted", "tiers", "pool", "byweight", "stale", "small", "leaving"}, manyNames()...)

// TestEnvoyServing takes Envoys through what Isobar serves them, with real
// requests to real backends: what each sends where is what the plan says.
func TestEnvoyServing(t *testing.T) {
	t.Parallel()
	startMatrix(t).play()
}

// play runs the scenarios one after the other: they change the same services.
func (m *matrix) play() {
	for _, scenario := range []struct {
		name, column string // column of the page that it is for; "" is none
		run          func(m *matrix)
	}{
		{"weights by source", weights, (*matrix).weights},
		{"endpoint weights", "", func(m *matrix) { m.follow("weighted", nil) }},
		{"draining", "", (*matrix).draining},
		{"degraded", "", (*matrix).degraded},
		{"panic", healthFilter, (*matrix).panics},
		{"spillover", failover, (*matrix).spillover},
		{"weighted priority health", "", (*matrix).weightedHealth},
		{"client status", "", (*matrix).clientStatus},
		{"NACK", nack, (*matrix).nack},
		{"drops", drops, (*matrix).drops},
		{"20 services", many, (*matrix).many},
		{"return of a service", takesBack, (*matrix).returns},
		{"restarts", restart, (*matrix).restarts},
	} {
		ok, ran := runs(m.t, scenario.name, func(t *testing.T) {
			t.Helper()
			scenario.run(m.on(t))
		})
		if ran && scenario.column != "" {
			m.ran(scenario.column, ok)
		}
	}
}

// on is the same matrix for a test within the test.
func (m *matrix) on(t *testing.T) *matrix {
	t.Helper()
	c := *m
	c.isobar = m.isobar.on(t)
	return &c
}

// ran notes how the test of a column ended for all Envoys. NACKs are seen only of
// those whose streams are tapped.
func (m *matrix) ran(column string, ok bool) {
	for _, g := range m.gateways {
		if column != nack || g.tap != nil {
			seen.ran(g.name(), column, ok)
		}
	}
}

// explain is what the server says of a service for a gateway.
func (m *matrix) explain(service string, g *gateway) (e plan.Explanation, err error) {
	err = m.get("/v1/explain?service="+service+"&from="+g.zone, &e)
	return e, err
}

// follow waits until every gateway sends its requests of a service to the
// endpoints that `predict` names for what it was served, in these shares, and
// no request fails. check looks at what one gateway was seen to do; nil is
// content with the shares.
func (m *matrix) follow(service string, check func(o outcome) error) {
	t := m.t
	t.Helper()
	var all sync.WaitGroup
	for _, g := range m.gateways {
		all.Go(func() {
			err := poll(t, func() error {
				e, err := m.explain(service, g)
				if err != nil {
					return err
				}
				o := g.requests(t.Context(), service, 240)
				if len(o.Failed) > 0 {
					return fmt.Errorf("failed: %v", o.Failed)
				}
				if err := m.compare(&e, &o); err != nil || check == nil {
					return err
				}
				return check(o)
			})
			if err != nil {
				t.Errorf("%s in %s, %s: %v", g.name(), g.zone, service, err)
			}
		})
	}
	all.Wait()
}

// compare holds requests against what is predicted: four standard deviations,
// and the phase with which a worker begins its rounds.
func (m *matrix) compare(e *plan.Explanation, o *outcome) error {
	want := map[string]float64{}
	for _, p := range e.DataPlanes.Envoy.Priorities {
		for _, l := range p.Localities {
			for _, at := range l.Endpoints {
				want[m.names[at.Address]] += at.Share
			}
		}
	}
	n := float64(total(o.Served))
	for name, share := range want {
		off := math.Abs(o.share(name) - share)
		if off > 4*math.Sqrt(share*(1-share)/n)+2/n {
			return fmt.Errorf("%s gets %.3f, predicted %.3f: %v, %v", name, o.share(name), share, o.Served, want)
		}
	}
	return nil
}

// poll is await without an end of the test.
func poll(t *testing.T, missing func() error) error {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err = missing(); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // real processes: bounded polling
	}
	return fmt.Errorf("not within %s: %w", patience, err)
}

// weights: the load that Envoys report becomes demand, us/a has more than it
// can serve, and each zone's Envoys split their requests by their own weights.
func (m *matrix) weights() {
	t := m.t
	rates := map[string]int{"us/a": 60, "us/b": 10}
	for _, g := range m.gateways {
		stop := g.steady(t.Context(), "split", rates[g.zone])
		defer stop()
	}
	last := -1.0
	await(t, "split of measured demand", func() error {
		service, source, err := m.source("split")
		if err != nil {
			return err
		}
		before := last
		last = share(source, "us/b")
		if len(service.Sources) < 2 || last < 0.1 || math.Abs(last-before) > 0.005 {
			pause(t.Context(), time.Second)
			return fmt.Errorf("%d sources, demand %.0f/s, %.3f to us/b, a second before %.3f", len(service.Sources), source.Demand, last, before)
		}
		return nil
	})
	m.ran(demand, true)
	m.noteReports()
	m.follow("split", nil)
}

// draining: an endpoint that drains gets nothing, and those beside it all.
func (m *matrix) draining() {
	m.health("pool", m.backends["one"].address, "draining")
	m.follow("pool", func(o outcome) error { return without(o, "one") })
	m.health("pool", m.backends["one"].address, "")
	near := []string{"n1", "n2", "n3"}
	for _, name := range near {
		m.health("tiers", m.backends[name].address, "draining")
	}
	m.follow("tiers", func(o outcome) error { return without(o, near...) })
	for _, name := range near {
		m.health("tiers", m.backends[name].address, "")
	}
}

// degraded: a degraded endpoint gets nothing while others are healthy, and all
// when they are not.
func (m *matrix) degraded() {
	m.configured("one", "unknown", "degraded")
	m.follow("pool", func(o outcome) error { return without(o, "one") })
	m.health("pool", m.backends["two"].address, "unhealthy")
	m.health("pool", m.backends["three"].address, "unhealthy")
	m.follow("pool", func(o outcome) error { return without(o, "two", "three") })
	m.health("pool", m.backends["two"].address, "")
	m.health("pool", m.backends["three"].address, "")
	m.configured("one", "degraded", "unknown")
	m.follow("pool", nil)
}

// panics: where every endpoint is unhealthy all of them get requests.
func (m *matrix) panics() {
	names := []string{"one", "two", "three"}
	for _, name := range names {
		m.health("pool", m.backends[name].address, "unhealthy")
	}
	m.follow("pool", func(o outcome) error {
		if len(o.Served) != len(names) {
			return fmt.Errorf("%v", o.Served)
		}
		return nil
	})
	for _, name := range names {
		m.health("pool", m.backends[name].address, "")
	}
}

// spillover: what of the nearest zone is unhealthy is made up for by the next
// one, and then by another region.
func (m *matrix) spillover() {
	m.follow("tiers", nil)
	down := func(names ...string) {
		for _, name := range names {
			m.health("tiers", m.backends[name].address, "unhealthy")
		}
	}
	down("n1", "n2", "n3")
	m.follow("tiers", func(o outcome) error { return without(o, "n1", "n2", "n3") })
	down("n4", "near")
	m.follow("tiers", func(o outcome) error {
		if o.Served["far"] != total(o.Served) {
			return fmt.Errorf("%v", o.Served)
		}
		return nil
	})
	for _, name := range []string{"n1", "n2", "n3", "n4", "near"} {
		m.health("tiers", m.backends[name].address, "")
	}
	m.follow("tiers", nil)
}

// weightedHealth: where the weights of endpoints count in place of endpoints, the
// loss of a heavy one is the loss of most of its zone.
func (m *matrix) weightedHealth() {
	m.follow("byweight", nil)
	m.health("byweight", m.backends["n1"].address, "unhealthy")
	m.follow("byweight", func(o outcome) error { return without(o, "n1") })
	m.health("byweight", m.backends["n1"].address, "")
}

func without(o outcome, names ...string) error {
	for _, name := range names {
		if o.Served[name] > 0 {
			return fmt.Errorf("%s still gets requests: %v", name, o.Served)
		}
	}
	return nil
}

// nack: what an Envoy refuses shows with its words, requests go on by what it
// had, and the next good assignment is accepted.
func (m *matrix) nack() {
	t := m.t
	for _, g := range m.gateways {
		if g.tap == nil {
			continue
		}
		g.tap.setEdit(func(a *endpointv3.ClusterLoadAssignment) {
			if a.GetClusterName() == "pool" {
				a.Policy = &endpointv3.ClusterLoadAssignment_Policy{DropOverloads: []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{
					{Category: "one", DropPercentage: &typev3.FractionalPercent{}}, {Category: "two", DropPercentage: &typev3.FractionalPercent{}},
				}}
			}
		})
	}
	m.health("pool", m.backends["one"].address, "draining")
	for _, g := range m.gateways {
		if g.tap != nil {
			m.refused(g)
		}
	}
	for _, g := range m.gateways {
		if g.tap == nil {
			continue
		}
		if o := g.requests(t.Context(), "pool", 60); len(o.Failed) > 0 || len(o.Served) != 3 {
			t.Errorf("%s: after a refusal it does not go on by what it had: %+v", g.name(), o)
		}
		g.tap.setEdit(nil)
	}
	m.health("pool", m.backends["one"].address, "")
	m.health("pool", m.backends["two"].address, "draining")
	m.follow("pool", func(o outcome) error { return without(o, "two") })
	m.health("pool", m.backends["two"].address, "")
	for _, g := range m.gateways {
		await(t, g.name()+" in sync", func() error { return m.inSync(g) })
	}
}

// refused waits until a refusal shows in /v1/clients and in `isobar clients`.
func (m *matrix) refused(g *gateway) {
	t := m.t
	t.Helper()
	const words = "drop_overload"
	await(t, "refusal of "+g.name(), func() error {
		list, err := m.clients(g)
		if err != nil {
			return err
		}
		for _, c := range list {
			if n := c.Types["eds"].NACK; n != nil && strings.Contains(n.Text, words) {
				return nil
			}
		}
		return fmt.Errorf("%+v", list)
	})
	out, err := exec.CommandContext(t.Context(), isobarPath, "clients", "--admin", "http://"+m.api).CombinedOutput()
	if err != nil {
		t.Fatalf("isobar clients: %v\n%s", err, out)
	}
	if !slices.ContainsFunc(strings.Split(string(out), "\n"), func(line string) bool { return strings.Contains(line, words) }) {
		t.Errorf("`isobar clients` does not show the refusal of %s:\n%s", g.name(), out)
	}
}

// inSync reports whether a gateway has accepted everything.
func (m *matrix) inSync(g *gateway) error {
	list, err := m.clients(g)
	for _, c := range list {
		if !c.InSync {
			return fmt.Errorf("%+v", c)
		}
	}
	return err
}

// clients finds a gateway: outside ADS it has a stream for each service.
func (m *matrix) clients(g *gateway) ([]admin.Client, error) {
	var list admin.ClientList
	err := m.get("/v1/clients", &list)
	found := slices.DeleteFunc(list.Clients, func(c admin.Client) bool { return c.ID != g.id || len(c.Types) == 0 })
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("no client %s", g.id)
	}
	return found, err
}

// restarts: no request fails while Isobar is gone, but those of a service whose
// endpoints go stale; Envoys follow the Isobar that comes back; and an Envoy
// that starts again has everything before it takes requests.
func (m *matrix) restarts() {
	t := m.t
	away := 7 * time.Second
	if interopAll() {
		away = time.Minute
	}
	stops := make([]func() outcome, len(m.gateways))
	for i, g := range m.gateways {
		stops[i] = g.steady(t.Context(), "pool", 20)
	}
	m.follow("stale", nil)
	m.kill()
	pause(t.Context(), away)
	for _, g := range m.gateways {
		if o := g.requests(t.Context(), "stale", 8); len(o.Served) > 0 {
			t.Errorf("%s: endpoints do not go stale: %+v", g.name(), o)
		}
	}
	m.run()
	m.follow("stale", nil)
	m.health("pool", m.backends["two"].address, "draining")
	m.follow("pool", func(o outcome) error { return without(o, "two") })
	for i, g := range m.gateways {
		if o := stops[i](); len(o.Failed) > 0 || total(o.Served) == 0 {
			t.Errorf("%s: requests while Isobar was away: %+v", g.name(), o)
		}
	}
	m.health("pool", m.backends["two"].address, "")
	g := m.gateways[0]
	g.Kill()
	g.start(t)
	if o := g.requests(t.Context(), "pool", 60); len(o.Failed) > 0 {
		t.Errorf("right after the start of an Envoy: %+v", o)
	}
	m.follow("pool", nil)
}
