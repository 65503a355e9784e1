package load_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// A client with a long history may jump by its own reputation or to a fair
// share of the capacity, not further.
func TestGuardAgainstBadReporters(t *testing.T) {
	for _, tc := range []struct {
		name     string
		nodes    int
		capacity float64
		jump     uint64 // requests in the interval
		want     float64
	}{
		{"few nodes are taken at their word", 10, 1000, 500_000, 100_000 + 90},
		{"ten times its own mean", 20, 1000, 500_000, 100 + 190},
		{"or a twentieth of the capacity", 20, 10_000, 500_000, 500 + 190},
		{"or of what is sent, without a capacity", 20, 0, 500_000, 100 + 190},
		{"below that it counts in full", 20, 1000, 400, 80 + 190},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tab := table()
			tab.SetCapacity("checkout", tc.capacity)
			var s *load.Snapshot
			for i := 1; i <= 6; i++ {
				var w []load.StreamWindow
				for n := range tc.nodes {
					c := newClient(load.StreamID(n+1), load.AgentGRPC)
					r := sent(interval, 50)
					if n == 7 && i == 6 {
						r = sent(interval, tc.jump)
					}
					w = append(w, c.window(report(at(float64(i)), r)))
				}
				tab.Merge(w)
				s = tab.Snapshot(at(float64(i)))
			}
			src := s.Service("checkout").Source(zoneA)
			near(t, "raw rate", src.Raw, tc.want, 1e-6)
			if capped := src.Raw < float64(tc.jump)/5; capped != (src.Capped == 1) {
				t.Errorf("%d streams are told to be capped at a rate of %v", src.Capped, src.Raw)
			}
		})
	}
}

func TestSites(t *testing.T) {
	tab := table()
	stats := func(l isobar.Locality, issued uint64, inProgress uint32, metrics ...load.MetricSum) load.ServiceReport {
		return load.ServiceReport{Service: "checkout", Interval: interval, Localities: []load.LocalityReport{{
			Locality: &l, Issued: issued, HasIssued: true, Errors: issued / 10, InProgress: inProgress,
			Details: &load.LocalityDetails{Metrics: metrics, Endpoints: []load.EndpointReport{{Address: "10.0.0.1:80", Issued: issued, Errors: issued / 10}}},
		}}}
	}
	a, b := newClient(1, load.AgentGRPC), newClient(2, load.AgentEnvoy)
	b.node.Locality, b.node.Cluster = zoneC, "batch"
	tab.Merge([]load.StreamWindow{
		a.window(report(at(1), stats(zoneB, 500, 20, load.MetricSum{Name: load.MetricApplication, Requests: 300, Total: 270}, load.MetricSum{Name: "queue", Requests: 10, Total: 50}))),
		b.window(report(at(1), stats(zoneB, 1000, 60, load.MetricSum{Name: load.MetricApplication, Requests: 100, Total: 30}, load.MetricSum{Name: load.MetricCPU, Requests: 100, Total: 99}))),
	})
	s := tab.Snapshot(at(1)).Service("checkout")
	if len(s.Sites) != 1 || len(s.Sources) != 2 {
		t.Fatalf("%d sites and %d sources, want 1 and 2", len(s.Sites), len(s.Sources))
	}
	site := s.Sites[0]
	near(t, "issued", site.Issued, 300, 1e-9)
	near(t, "errors", site.Errors, 30, 1e-9)
	near(t, "utilization, weighted by requests", site.Utilization, 0.75, 1e-9)
	if len(site.Metrics) != 3 || site.Metrics[2] != (load.Metric{Name: "queue", Mean: 5}) {
		t.Errorf("metrics = %+v", site.Metrics)
	}
	if len(site.Endpoints) != 1 || site.Endpoints[0] != (load.EndpointLoad{Address: "10.0.0.1:80", Issued: 300, Errors: 30}) {
		t.Errorf("endpoints = %+v", site.Endpoints)
	}
	near(t, "latency by Little's law", s.Source(zoneC).Landed[0].LatencyMS(), 300, 1e-6)
	if c := s.Source(zoneC).Clients; len(c) != 1 || c[0] != (load.ClientLoad{Name: "batch", Rate: 200}) {
		t.Errorf("clients = %+v", c)
	}
}

func TestLatencyIsALongMean(t *testing.T) {
	tab := table()
	c := newClient(1, load.AgentGRPC)
	var s *load.Snapshot
	for i := 1; i <= 200; i++ {
		r := sent(interval, 500)
		r.Localities[0].InProgress = uint32(i % 2 * 20) // 10 on average
		tab.Merge([]load.StreamWindow{c.window(report(at(float64(i)), r))})
		s = tab.Snapshot(at(float64(i)))
	}
	near(t, "latency", s.Service("checkout").Source(zoneA).Landed[0].LatencyMS(), 100, 5)
}

// The same reports give the same bytes, in whatever order the windows come.
func TestSameInputSameBytes(t *testing.T) {
	run := func(seed uint64) string {
		order := rand.New(rand.NewPCG(seed, 1))
		data := rand.New(rand.NewPCG(7, 7))
		tab := table(load.Saved{Service: "other", Source: zoneB, Rate: 5})
		evidence := load.NewAdherence(load.Settings{Interval: interval})
		var out []byte
		for i := 1; i <= 20; i++ {
			var w []load.StreamWindow
			for n := range 30 {
				c := newClient(load.StreamID(n+1), load.AgentGRPC)
				c.node.Locality = []isobar.Locality{zoneA, zoneB, zoneC}[n%3]
				w = append(w, c.window(report(at(float64(i)), sent(interval+time.Duration(data.Int64N(1e9)), data.Uint64N(1000)))))
			}
			order.Shuffle(len(w), func(a, b int) { w[a], w[b] = w[b], w[a] })
			tab.Merge(w)
			s := tab.Snapshot(at(float64(i)))
			f := evidence.Observe(at(float64(i)), s.Service("checkout"), []load.PlannedSource{{
				Source: zoneA, Acked: start, Shares: []load.PlannedShare{{Locality: zoneB, Share: 0.4}, {Locality: zoneC, Share: 0.6}},
			}})
			b, err := json.Marshal([]any{s, f})
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, b...)
		}
		return string(out)
	}
	want := run(1)
	for seed := uint64(2); seed < 6; seed++ {
		if run(seed) != want {
			t.Fatal("the order of the windows shows in the output")
		}
	}
}

func TestAppendMergesBeyondItsBound(t *testing.T) {
	c := newClient(1, load.AgentGRPC)
	w := c.window()
	for i := 1; i <= 100; i++ {
		r := sent(interval, 500)
		r.Dropped = 5
		r.DroppedBy = []load.DropCount{{Category: "x", Count: 5}}
		r.Localities[0].Details = &load.LocalityDetails{
			Metrics:   []load.MetricSum{{Name: load.MetricCPU, Requests: 10, Total: 5}},
			Endpoints: []load.EndpointReport{{Address: "10.0.0.1:80", Issued: 500}},
		}
		if merged := w.Append(report(at(float64(i)), r), 4); merged != (i > 4) {
			t.Fatalf("report %d: merged = %v", i, merged)
		}
	}
	if len(w.Reports) != 4 {
		t.Fatalf("%d reports, want 4", len(w.Reports))
	}
	tab := table()
	tab.Merge([]load.StreamWindow{w})
	s := tab.Snapshot(at(100)).Service("checkout")
	src := s.Source(zoneA)
	near(t, "rate", src.Raw, 101, 1e-9)
	near(t, "drops", src.Drop, 1, 1e-9)
	if len(src.Drops) != 1 || src.Drops[0] != (load.CategoryDrop{Category: "x", Rate: 1}) {
		t.Errorf("drops by category = %+v", src.Drops)
	}
	near(t, "endpoint", s.Sites[0].Endpoints[0].Issued, 100, 1e-9)
	near(t, "utilization", s.Sites[0].Utilization, 0.5, 1e-9)
}

func TestRetriesAreCapped(t *testing.T) {
	failing := func(good, bad uint64) load.ServiceReport {
		return load.ServiceReport{Service: "checkout", Interval: interval, Localities: []load.LocalityReport{
			{Locality: &zoneB, Issued: good + bad, HasIssued: true, Succeeded: good, Errors: bad},
		}}
	}
	for _, tc := range []struct {
		name      string
		good, bad uint64
		want      float64
	}{
		{"four tries of everything", 0, 2000, 125},
		{"failures alone are no growth", 0, 500, 100},
		{"real growth counts in full", 1000, 0, 200},
		{"growth that lasts, a third of which fails", 1000, 500, 300},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tab := table()
			c := newClient(1, load.AgentGRPC)
			for i := 1; i <= 14; i++ {
				r := failing(500, 0)
				if i > 6 {
					r = failing(tc.good, tc.bad)
				}
				tab.Merge([]load.StreamWindow{c.window(report(at(float64(i)), r))})
				tab.Snapshot(at(float64(i)))
			}
			near(t, "demand", demand(tab.Snapshot(at(14))), tc.want, 0.08*tc.want)
		})
	}
}

// TestInventedNamesHideNoRealOnes asserts that the metrics that decisions use, and the endpoints that the service has,
// count however many others a client names.
func TestInventedNamesHideNoRealOnes(t *testing.T) {
	tab := table()
	tab.SetTopology(&isobar.Topology{Services: []isobar.Service{{
		Name: "checkout", Limits: []isobar.Limit{{Metric: isobar.NamedMetrics + "zz-queue", Max: 10}},
		Localities: []isobar.ServiceLocality{{Locality: zoneB, Endpoints: []isobar.Endpoint{{Address: "99.0.0.1:80"}}}},
	}}})
	stats := func(metrics []load.MetricSum, endpoints []load.EndpointReport) load.ServiceReport {
		return load.ServiceReport{Service: "checkout", Interval: interval, Localities: []load.LocalityReport{{
			Locality: &zoneB, Issued: 500, HasIssued: true, Succeeded: 500, Details: &load.LocalityDetails{Metrics: metrics, Endpoints: endpoints},
		}}}
	}
	var invented load.LocalityDetails
	for i := range 300 {
		invented.Metrics = append(invented.Metrics, load.MetricSum{Name: fmt.Sprint("a", i), Requests: 1, Total: 1})
	}
	for i := range 70_000 {
		invented.Endpoints = append(invented.Endpoints, load.EndpointReport{Address: fmt.Sprintf("10.%d.%d.1:80", i/256, i%256), Issued: 1})
	}
	names := []string{load.MetricApplication, load.MetricCPU, "zz-queue", "zz-unused"}
	var told []load.MetricSum
	for _, name := range names {
		told = append(told, load.MetricSum{Name: name, Requests: 10, Total: 5})
	}
	liar, honest := newClient(1, load.AgentEnvoy), newClient(2, load.AgentEnvoy)
	tab.Merge([]load.StreamWindow{
		liar.window(report(at(1), stats(invented.Metrics, invented.Endpoints))),
		honest.window(report(at(1), stats(told, []load.EndpointReport{{Address: "99.0.0.1:80", Issued: 500}, {Address: "99.0.0.2:80", Issued: 500}}))),
	})
	site := tab.Snapshot(at(1)).Service("checkout").Sites[0]
	for i, name := range names {
		if got := slices.ContainsFunc(site.Metrics, func(m load.Metric) bool { return m.Name == name }); got != (i < 3) {
			t.Errorf("metric %s counts: %v", name, got)
		}
	}
	for i, address := range []string{"99.0.0.1:80", "99.0.0.2:80"} {
		if got := slices.ContainsFunc(site.Endpoints, func(e load.EndpointLoad) bool { return e.Address == address }); got != (i == 0) {
			t.Errorf("endpoint %s counts: %v", address, got)
		}
	}
	if len(site.Metrics) > 256+3 || len(site.Endpoints) > 65_536+1 {
		t.Errorf("%d metrics and %d endpoints are kept", len(site.Metrics), len(site.Endpoints))
	}
}

// TestInventedClientsHideNoService asserts that services among the clients of a source count however many other clients there are.
func TestInventedClientsHideNoService(t *testing.T) {
	tab := table()
	tab.SetTopology(&isobar.Topology{Services: []isobar.Service{{Name: "checkout"}, {Name: "web"}}})
	var windows []load.StreamWindow
	for i := range 5_000 {
		c := newClient(load.StreamID(i+1), load.AgentEnvoy)
		c.node.ID, c.node.Cluster = fmt.Sprint("node-", i), fmt.Sprint("invented-", i)
		windows = append(windows, c.window(report(at(1), sent(interval, 50))))
	}
	web := newClient(6_000, load.AgentEnvoy)
	web.node.ID, web.node.Cluster = "web-1", "web"
	tab.Merge(append(windows, web.window(report(at(1), sent(interval, 50)))))
	clients := tab.Snapshot(at(1)).Service("checkout").Source(web.node.Locality).Clients
	if !slices.ContainsFunc(clients, func(c load.ClientLoad) bool { return c.Name == "web" }) {
		t.Errorf("of %d clients none is web", len(clients))
	}
	if len(clients) > 4_096+1 {
		t.Errorf("%d clients are kept", len(clients))
	}
}
