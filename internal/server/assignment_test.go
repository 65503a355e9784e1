package server_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// canary is a service with all that can be said of an assignment; settings go
// into it.
func canary(settings string) string {
	return `{"assignment": {` + settings + `}, "localities": [{"locality": "us/a", "metadata": {"envoy.lb": {"tier": 1}}, "endpoints": [
		{"address": "10.9.0.1:80", "weight": 3, "hostname": "one.example", "additional_addresses": ["[2001:db8::1]:80"],
		 "metadata": {"envoy.lb": {"version": "canary"}}, "health_check_config": {"port": 81}},
		"10.9.0.2:80"]}]}`
}

// canarySent is what clients get of it, with the given policy.
func canarySent(t *testing.T, policy string) *endpointv3.ClusterLoadAssignment {
	t.Helper()
	m := &endpointv3.ClusterLoadAssignment{}
	if err := protojson.Unmarshal([]byte(`{"clusterName": "pay", "policy": `+policy+`, "endpoints": [{
		"locality": {"region": "us", "zone": "a"}, "loadBalancingWeight": 10000, "metadata": {"filterMetadata": {"envoy.lb": {"tier": 1}}},
		"lbEndpoints": [
			{"loadBalancingWeight": 3, "metadata": {"filterMetadata": {"envoy.lb": {"version": "canary"}}}, "endpoint": {
				"address": {"socketAddress": {"address": "10.9.0.1", "portValue": 80}}, "hostname": "one.example",
				"additionalAddresses": [{"address": {"socketAddress": {"address": "2001:db8::1", "portValue": 80}}}],
				"healthCheckConfig": {"portValue": 81}}},
			{"loadBalancingWeight": 1, "endpoint": {"address": {"socketAddress": {"address": "10.9.0.2", "portValue": 80}}}}]}]}`), m); err != nil {
		t.Fatal(err)
	}
	if policy == "null" {
		m.Policy = nil
	}
	return m
}

func wantSent(t *testing.T, a *fleet.Agent, policy string) {
	t.Helper()
	synctest.Wait()
	if got, want := a.Assignment("pay"), canarySent(t, policy); !proto.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", protojson.Format(got), protojson.Format(want))
	}
}

// TestWholeAssignmentReachesClients: what the API is told of a service reaches
// clients at once, what did not change is not sent again, the API shows it as
// it was written, and a restart keeps it.
func TestWholeAssignmentReachesClients(t *testing.T) {
	cfg := configuration(t)
	cfg.Admin.Writable = true
	agent := func(w *world) *fleet.Agent {
		a, err := fleet.NewAgent(fleet.AgentOptions{Conn: w.conn, ID: "one", Locality: loc("us/a"), Services: []string{"pay"}})
		if err != nil {
			t.Fatal(err)
		}
		go a.Run(w.ctx)
		synctest.Wait()
		return a
	}
	last := canary(`"endpoint_stale_after": "30s", "overprovisioning_factor": 200`)
	const lastPolicy = `{"endpointStaleAfter": "30s", "overprovisioningFactor": 200}`
	bubble.Test(t, func(t *testing.T) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		runWorld(t, cfg, kept, func(w *world) {
			put := func(body string) {
				t.Helper()
				if status, answer := w.put("/v1/services/pay", body); status != http.StatusOK {
					t.Fatalf("answered %d %v", status, answer)
				}
				synctest.Wait()
			}
			put(canary(``))
			a := agent(w)
			wantSent(t, a, `null`)
			for _, step := range []struct{ settings, policy string }{
				{`"weighted_priority_health": true`, `{"weightedPriorityHealth": true}`},
				{`"endpoint_stale_after": "1m"`, `{"endpointStaleAfter": "60s"}`},
				{`"resource_ttl": "1m"`, `null`},
				{`"overprovisioning_factor": 100`, `{"overprovisioningFactor": 100}`},
				{`"endpoint_stale_after": "30s", "overprovisioning_factor": 200`, lastPolicy},
			} {
				put(canary(step.settings))
				wantSent(t, a, step.policy)
				before := a.Assignment("pay")
				put(canary(step.settings))
				if a.Assignment("pay") != before {
					t.Errorf("%s: sent again", step.settings)
				}
			}
			var object struct{ Service json.RawMessage }
			if status := w.read("127.0.0.1", "/v1/services/pay", &object); status != http.StatusOK {
				t.Errorf("answered %d", status)
			}
			before := a.Assignment("pay")
			put(string(object.Service)) // it can be written as it was read
			if a.Assignment("pay") != before {
				t.Errorf("%s differs from %s", object.Service, last)
			}
			time.Sleep(15 * time.Second) //nolint:forbidigo // virtual time
			if synctest.Wait(); a.Assignment("pay") == before {
				t.Error("half of endpoint_stale_after has passed, and nothing was sent again")
			}
			wantSent(t, a, lastPolicy)
		})
		runWorld(t, cfg, kept, func(w *world) {
			wantSent(t, agent(w), lastPolicy)
		})
	})
}

// TestClassesOverTheWire: demand is a third too much. Clients of one locality
// are told different drops by their class: batch jobs in both regions yield
// as far as they may, then everybody else does; payments do not.
func TestClassesOverTheWire(t *testing.T) {
	cfg := configuration(t)
	site := func(l, address string) isobar.ServiceLocality {
		return isobar.ServiceLocality{Locality: loc(l), MaxRate: 1000, Endpoints: []isobar.Endpoint{{Address: address}}}
	}
	cfg.Services = []isobar.Service{{
		Name: "checkout", MaxShed: 0.5, Localities: []isobar.ServiceLocality{site("us/a", "10.0.0.1:80"), site("eu/a", "10.1.0.1:80")},
		Criticality: &isobar.Criticality{
			Clients: []isobar.ClientClass{{Client: "batch-*", Class: isobar.ClassSheddable}, {Client: "payments", Class: isobar.ClassCriticalPlus}},
			MaxShed: isobar.ClassFractions{0, 0.5, 0.5, 0.75},
		},
	}}
	inWorld(t, cfg, func(w *world) {
		ended := time.Now().Add(3 * time.Minute)
		until := func(rate float64) func(time.Time) float64 {
			return func(now time.Time) float64 {
				if now.Before(ended) {
					return rate
				}
				return rate / 2
			}
		}
		var agents []fleet.AgentOptions
		for _, region := range []string{"us/a", "eu/a"} {
			for i, cluster := range []string{"batch-reports", "payments", "web"} {
				rate := []float64{200, 400, 480}[i]
				agents = append(agents, clients(region, 2, until(rate), func(o *fleet.AgentOptions) { o.ID, o.Cluster = cluster+"-"+region+o.ID, cluster })...)
			}
		}
		w.start(agents...)
		p := w.tick()
		for time.Now().Before(ended.Add(-2 * interval)) {
			p = w.tick()
			noViolations(t, p)
		}
		// 2160 requests/s, room for 1600: batch gives 300 of 400, web 260 of 960.
		want := map[string]float64{"batch-reports": 0.75, "payments": 0, "web": 260. / 960}
		for i, a := range w.agents {
			cluster := agents[i].Cluster
			drop := 0.0
			for _, d := range a.Assignment("checkout").GetPolicy().GetDropOverloads() {
				drop += float64(d.GetDropPercentage().GetNumerator()) / map[string]float64{"HUNDRED": 100, "TEN_THOUSAND": 10_000}[d.GetDropPercentage().GetDenominator().String()]
			}
			if math.Abs(drop-want[cluster]) > 0.03 {
				t.Errorf("%s in %s drops %.3f, want %.3f", cluster, agents[i].Locality, drop, want[cluster])
			}
		}
		e, err := p.Explain("checkout", loc("us/a"))
		if err != nil {
			t.Fatal(err)
		}
		if len(e.Classes) != 4 || strings.Join(e.Classes[isobar.ClassSheddable].Clients, " ") != "batch-reports" ||
			math.Abs(e.Classes[isobar.ClassSheddable].Rate-400) > 40 || e.Classes[isobar.ClassCriticalPlus].Drop != 0 {
			t.Errorf("classes are explained as %+v", e.Classes)
		}
		for time.Now().Before(ended.Add(2 * time.Minute)) {
			p = w.tick()
		}
		if s, _ := p.Service("checkout"); s.Result.Drop != 0 {
			t.Errorf("%.3f is still dropped when all fits again", s.Result.Drop)
		}
	})
}

// TestCallsOverTheWire: customers in us/a send to checkout, whose instances are
// clients of pay and make two calls for each request. pay has room for 800 calls
// in us/a, so that 600 of 1000 requests have to leave for eu/a before they call.
func TestCallsOverTheWire(t *testing.T) {
	cfg := configuration(t)
	site := func(l string, rate float64, address string) isobar.ServiceLocality {
		return isobar.ServiceLocality{Locality: loc(l), MaxRate: rate, Endpoints: []isobar.Endpoint{{Address: address}}}
	}
	cfg.Services = []isobar.Service{
		{
			Name:       "checkout",
			Localities: []isobar.ServiceLocality{site("us/a", 2000, "10.0.0.1:80"), site("eu/a", 2000, "10.1.0.1:80")},
			Calls:      []isobar.Call{{Service: "pay", PerRequest: 2}},
		},
		{
			Name:       "pay",
			Localities: []isobar.ServiceLocality{site("us/a", 1000, "10.0.1.1:80"), site("eu/a", 4000, "10.1.1.1:80")},
		},
	}
	inWorld(t, cfg, func(w *world) {
		near := func() float64 { return w.server.Plan().Assignment("checkout", loc("us/a")).Share(loc("us/a")) }
		instances := func(l string, share func() float64) []fleet.AgentOptions {
			calls := func(time.Time) float64 { return 2 * 1000 * share() }
			return clients(l, 3, calls, func(o *fleet.AgentOptions) {
				o.ID, o.Cluster, o.Services = "checkout-"+o.ID, "checkout", []string{"pay"}
			})
		}
		agents := clients("us/a", 3, constant(1000))
		agents = append(agents, instances("us/a", near)...)
		agents = append(agents, instances("eu/a", func() float64 { return 1 - near() })...)
		w.start(agents...)
		p := w.tick()
		for range 30 {
			p = w.tick()
			noViolations(t, p)
		}
		if s := near(); math.Abs(s-0.4) > 0.03 {
			t.Errorf("checkout keeps %.3f in us/a, want 0.4", s)
		}
		if s := p.Assignment("pay", loc("us/a")).Share(loc("us/a")); s < 0.97 {
			t.Errorf("pay keeps %.3f of calls from us/a there, want all", s)
		}
		e, err := p.Explain("pay", loc("us/a"))
		if err != nil {
			t.Fatal(err)
		}
		if len(e.Calls) != 1 || !e.Calls[0].Used || math.Abs(e.Calls[0].Measured-2) > 0.1 {
			t.Errorf("calls %+v, want checkout's two per request", e.Calls)
		}
		if math.Abs(e.Demand.Rate-800) > 60 {
			t.Errorf("pay is planned for %.0f requests/s from us/a, want 800", e.Demand.Rate)
		}
	})
}

// TestRulesReachClients: a service that its region must not leave, as real
// streams carry it. Clients elsewhere are told that there is nothing for them,
// and are served as soon as the rule is gone.
func TestRulesReachClients(t *testing.T) {
	cfg := configuration(t)
	cfg.Admin.Writable = true
	inWorld(t, cfg, func(w *world) {
		put := func(path, body string) {
			t.Helper()
			if status, answer := w.put(path, body); status != http.StatusOK {
				t.Fatalf("answered %d %v", status, answer)
			}
			synctest.Wait()
		}
		service := func(rules string) {
			t.Helper()
			put("/v1/services/pay", `{`+rules+`, "localities": [
				{"locality": "us/a", "endpoints": ["10.9.0.1:80"]}, {"locality": "eu/a", "endpoints": ["10.9.1.1:80"]}]}`)
		}
		service(`"isolation": "strict"`)
		agents := map[string]*fleet.Agent{}
		for _, from := range []string{"us/a", "eu/b", "ap/a"} {
			a, err := fleet.NewAgent(fleet.AgentOptions{Conn: w.conn, ID: from, Locality: loc(from), Services: []string{"pay"}})
			if err != nil {
				t.Fatal(err)
			}
			go a.Run(w.ctx)
			agents[from] = a
		}
		synctest.Wait()
		want := func(from string, tiers ...string) {
			t.Helper()
			m := agents[from].Assignment("pay")
			if m == nil {
				t.Fatalf("%s got no answer", from)
			}
			var got []string
			for _, l := range m.GetEndpoints() {
				for _, e := range l.GetLbEndpoints() {
					got = append(got, fmt.Sprintf("%d %s/%s %s", l.GetPriority(), l.GetLocality().GetRegion(), l.GetLocality().GetZone(), e.GetHealthStatus()))
				}
			}
			if !slices.Equal(got, tiers) {
				t.Errorf("%s got %q, want %q", from, got, tiers)
			}
		}
		want("us/a", "0 us/a UNKNOWN")
		want("eu/b", "0 eu/a UNKNOWN")
		want("ap/a")

		put("/v1/services/pay/endpoints/10.9.0.1:80/health", "unhealthy")
		want("us/a", "0 us/a UNKNOWN") // it fails open, rather than leave the region
		want("eu/b", "0 eu/a UNKNOWN")

		service(`"policy": "nearest"`)
		want("us/a", "0 eu/a UNKNOWN", "1 us/a UNHEALTHY")
		want("ap/a", "0 eu/a UNKNOWN", "1 us/a UNHEALTHY")
		service(`"residency": [{"from": "*", "allow": ["eu"]}]`)
		want("us/a", "0 eu/a UNKNOWN")
		want("ap/a", "0 eu/a UNKNOWN")
	})
}
