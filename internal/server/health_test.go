package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// checked is the configuration with health checks: every 5 s, down after two
// failures.
func checked(t *testing.T) *config.Config {
	t.Helper()
	cfg := configuration(t)
	cfg.Admin.Writable = true
	cfg.Services[0].HealthChecks = []isobar.HealthCheck{{
		Protocol: isobar.CheckHTTP, HTTP: &isobar.HTTPCheck{Path: "/healthz"},
		Interval: 5 * time.Second, Timeout: time.Second, UnhealthyThreshold: 2, HealthyThreshold: 2,
	}}
	return cfg
}

// truth is how probes end, by checker and address.
type truth struct {
	mu      sync.Mutex
	outcome map[string]fleet.ProbeOutcome // "address" or "checker address"
}

func (tr *truth) set(key string, o fleet.ProbeOutcome) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.outcome == nil {
		tr.outcome = map[string]fleet.ProbeOutcome{}
	}
	tr.outcome[key] = o
}

func (tr *truth) probe(checker string) func(string, string, time.Time) fleet.ProbeOutcome {
	return func(_, address string, _ time.Time) fleet.ProbeOutcome {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		if o, ok := tr.outcome[checker+" "+address]; ok {
			return o
		}
		return tr.outcome[address]
	}
}

// checkers starts fake Envoys that probe, one in each of the given zones, and
// returns what stops each.
func (w *world) checkers(tr *truth, zones ...string) []context.CancelFunc {
	w.t.Helper()
	var stops []context.CancelFunc
	for i, z := range zones {
		id := fmt.Sprintf("checker-%d", i)
		e, err := fleet.NewEnvoyChecker(fleet.EnvoyCheckerOptions{
			Conn: w.conn, ID: id, Locality: loc(z), Probe: tr.probe(id), Seed: uint64(i), Build: fleet.EnvoyBuild(i % 2),
		})
		if err != nil {
			w.t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(w.ctx)
		stops = append(stops, cancel)
		go func() { _ = e.Run(ctx) }()
	}
	return stops
}

func healthOf(p *plan.Plan, address string) isobar.HealthStatus {
	s, _ := p.Service("checkout")
	for i := range s.Sites {
		for _, e := range s.Sites[i].Group.Endpoints {
			if e.Address == address {
				return e.Health
			}
		}
	}
	return isobar.Unknown
}

// settle lets some time pass and returns the plan after it.
func (w *world) settle(d time.Duration) *plan.Plan {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
	return w.server.Plan()
}

var fiveZones = []string{"us/a", "us/b", "eu/a", "eu/b", "us/c"}

// detection bounds how long a failure may take to be seen: two probes, the
// timeout of the last and a report.
const detection = 2*5*time.Second + time.Second + interval + 200*time.Millisecond

// TestCheckersFindAHangingEndpoint: it accepts and never answers; that is a
// timeout to every checker, the endpoint is drained without a word of an
// operator, and is used again when it answers.
func TestCheckersFindAHangingEndpoint(t *testing.T) {
	inWorld(t, checked(t), func(w *world) {
		var tr truth
		w.checkers(&tr, fiveZones...)
		w.start(everywhere(300)...)
		p := w.settle(time.Minute)
		for e := range 4 {
			if h := healthOf(p, fmt.Sprintf("10.2.0.%d:80", e+1)); h != isobar.Healthy {
				t.Errorf("endpoint %d of us/a is %s, want healthy", e+1, h)
			}
		}
		tr.set("10.2.0.1:80", fleet.ProbeHangs)
		p = w.settle(detection + interval) // checkers are not in step
		noViolations(t, p)
		if h := healthOf(p, "10.2.0.1:80"); h.Usable() {
			t.Fatalf("the endpoint that hangs is %s", h)
		}
		if s := p.Services[0].Sites[site(t, p, "us/a")]; s.Capacity != 750 {
			t.Errorf("capacity of us/a is %v with 3 of 4 endpoints, want 750", s.Capacity)
		}
		tr.set("10.2.0.1:80", fleet.ProbePasses)
		p = w.settle(2 * detection)
		if h := healthOf(p, "10.2.0.1:80"); h != isobar.Healthy {
			t.Errorf("the endpoint answers again and is %s", h)
		}
	})
}

// TestOneLyingCheckerChangesNothing: one of five says that everything is down,
// then that everything is up while an endpoint is really down.
func TestOneLyingCheckerChangesNothing(t *testing.T) {
	inWorld(t, checked(t), func(w *world) {
		var tr truth
		w.checkers(&tr, fiveZones...)
		w.start(everywhere(300)...)
		w.settle(time.Minute)
		for z := range 4 {
			for e := range 4 {
				tr.set(fmt.Sprintf("checker-1 10.%d.0.%d:80", z, e+1), fleet.ProbeFails)
			}
		}
		for range 24 {
			p := w.settle(interval)
			for z := range 4 {
				for e := range 4 {
					if a := fmt.Sprintf("10.%d.0.%d:80", z, e+1); healthOf(p, a) != isobar.Healthy {
						t.Fatalf("%s is %s because one checker says so", a, healthOf(p, a))
					}
				}
			}
		}
		tr.set("10.0.0.1:80", fleet.ProbeFails)
		tr.set("checker-1 10.0.0.1:80", fleet.ProbePasses)
		if h := healthOf(w.settle(2*detection), "10.0.0.1:80"); h.Usable() {
			t.Errorf("an endpoint that is down counts as %s because one checker says so", h)
		}
	})
}

// TestLostCheckersFlipNothing: one checker dies and its endpoints are probed by
// others; then all die, and the verdicts stay.
func TestLostCheckersFlipNothing(t *testing.T) {
	inWorld(t, checked(t), func(w *world) {
		var tr truth
		tr.set("10.3.0.2:80", fleet.ProbeFails)
		stops := w.checkers(&tr, fiveZones...)
		w.start(everywhere(300)...)
		w.settle(time.Minute)
		steady := func(when string) {
			p := w.server.Plan()
			for z := range 4 {
				for e := range 4 {
					a := fmt.Sprintf("10.%d.0.%d:80", z, e+1)
					if down := !healthOf(p, a).Usable(); down != (a == "10.3.0.2:80") {
						t.Fatalf("%s: %s is %s", when, a, healthOf(p, a))
					}
				}
			}
		}
		steady("with all checkers")
		stops[0]()
		for range 12 {
			w.settle(interval)
			steady("after the loss of one")
		}
		reports, err := w.server.Health(w.ctx, "checkout")
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range reports[0].Endpoints {
			if len(v.Votes) != 3 {
				t.Errorf("%s has %d checkers after the loss of one of five, want 3", v.Address, len(v.Votes))
			}
		}
		for _, stop := range stops[1:] {
			stop()
		}
		for range 60 {
			w.settle(interval)
			steady("with no checker")
		}
		reports, err = w.server.Health(w.ctx, "checkout")
		if err != nil {
			t.Fatal(err)
		}
		if age := time.Since(reports[0].Summary.OldestConfirmed); age < 4*time.Minute || reports[0].Summary.Frozen == 0 {
			t.Errorf("verdicts do not show their age: %v, %+v", age, reports[0].Summary)
		}
	})
}

// TestHealthSurvivesARestart: a new process uses what was found before,
// until the checkers are back, and nothing flips when they are.
func TestHealthSurvivesARestart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		cfg := checked(t)
		var tr truth
		tr.set("10.3.0.2:80", fleet.ProbeFails)
		runWorld(t, cfg, kept, func(w *world) {
			w.checkers(&tr, fiveZones...)
			w.start(everywhere(300)...)
			w.settle(time.Minute)
		})
		runWorld(t, cfg, kept, func(w *world) {
			synctest.Wait()
			if h := healthOf(w.server.Plan(), "10.3.0.2:80"); h.Usable() {
				t.Errorf("the first plan of the new process takes an endpoint that is down for %s", h)
			}
			w.checkers(&tr, fiveZones...)
			w.start(everywhere(300)...)
			for range 12 {
				p := w.settle(interval)
				if h := healthOf(p, "10.3.0.2:80"); h.Usable() {
					t.Errorf("an endpoint that is down became %s", h)
				}
				if h := healthOf(p, "10.3.0.1:80"); !h.Usable() {
					t.Errorf("an endpoint that is up became %s", h)
				}
			}
		})
	})
}

// post sends a message of a checker that polls.
func (w *world) post(id string, body any) []byte {
	w.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		w.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(w.ctx, http.MethodPost, "http://localhost"+rpc.CheckerPath, strings.NewReader(string(data)))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set(hds.CheckerHeader, id)
	return w.answered(req)
}

// answered returns the body of an answer that has to be 200.
func (w *world) answered(req *http.Request) []byte {
	w.t.Helper()
	resp, err := w.api.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out json.RawMessage
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != http.StatusOK {
		w.t.Fatalf("%s: %s %s %v", req.URL, resp.Status, out, err)
	}
	return out
}

// TestMetadataOfCheckersIsShown: what a checker adds to a status stands beside
// its vote where operators look.
func TestMetadataOfCheckersIsShown(t *testing.T) {
	inWorld(t, checked(t), func(w *world) {
		type object = map[string]any
		hello := object{"health_check_request": object{
			"node":       object{"id": "rest-1", "locality": object{"region": "us", "zone": "a"}},
			"capability": object{"health_check_protocols": []string{"HTTP"}},
		}}
		w.post("", hello)
		w.settle(interval)
		var work struct {
			Clusters []struct {
				Name       string `json:"cluster_name"`
				Localities []struct {
					Locality  object   `json:"locality"`
					Endpoints []object `json:"endpoints"`
				} `json:"locality_endpoints"`
			} `json:"cluster_health_checks"`
		}
		if err := json.Unmarshal(w.post("", hello), &work); err != nil {
			t.Fatal(err)
		}
		if len(work.Clusters) != 1 || len(work.Clusters[0].Localities) == 0 {
			t.Fatalf("it is to probe %+v", work)
		}
		at := work.Clusters[0].Localities[0]
		w.post("rest-1", object{"endpoint_health_response": object{"cluster_endpoints_health": []object{{
			"cluster_name": work.Clusters[0].Name,
			"locality_endpoints_health": []object{{"locality": at.Locality, "endpoints_health": []object{{
				"endpoint": at.Endpoints[0], "health_status": "HEALTHY", "health_metadata": object{"rtt_ms": 1.5},
			}}}},
		}}}})
		w.settle(time.Second)
		req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, "http://localhost/v1/verdicts?service=checkout", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if out := string(w.answered(req)); strings.Count(out, `"metadata":"{\"rtt_ms\":1.5}"`) != 1 {
			t.Errorf("verdicts are %s", out)
		}
	})
}
