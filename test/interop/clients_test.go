package interop

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
)

// tolerance of measured shares: four standard deviations of 400 calls.
const (
	sample    = 400
	tolerance = 0.1
)

// site is the Isobar of one kind of client with the backends of its services.
type site struct {
	*isobar

	kind     kind
	backends map[string]*backend
}

// TestClients takes every gRPC client through what Isobar does for it.
func TestClients(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, k)
			for _, scenario := range []struct {
				column string
				run    func(s *site)
			}{
				{weights, (*site).weights},
				{drops, (*site).drops},
				{failover, (*site).failover},
				{healthFilter, (*site).health},
				{orcaWeights, (*site).orca},
				{nack, (*site).nack},
				{restart, (*site).restart},
				{many, (*site).many},
			} {
				if excused(k.name, scenario.column) {
					continue
				}
				checkColumn(t, k.name, scenario.column, func(t *testing.T) {
					t.Helper()
					scenario.run(s.on(t))
				})
			}
			hears := s.hearsOutOfBand()
			t.Run("deletion", func(t *testing.T) { s.on(t).deletion() })
			if hears != nil {
				checkColumn(t, k.name, outOfBand, func(t *testing.T) {
					t.Helper()
					s.on(t).outOfBand(hears)
				})
			}
		})
	}
}

// on is the same site for a test within the test.
func (s *site) on(t *testing.T) *site {
	t.Helper()
	c := *s
	c.isobar = s.isobar.on(t)
	return &c
}

func newSite(t *testing.T, k kind) *site {
	t.Helper()
	s := &site{kind: k, backends: map[string]*backend{}}
	at := func(names ...string) string {
		var addresses []string
		for _, name := range names {
			if s.backends[name] == nil {
				s.backends[name] = startBackend(t, name, "")
			}
			addresses = append(addresses, fmt.Sprintf("%q", s.backends[name].address))
		}
		return "[" + strings.Join(addresses, ", ") + "]"
	}
	idle, busy := startReporter(t, "idle", 0.2), startReporter(t, "busy", 0.8)
	tick := time.Second
	if k.api == v2 {
		// gRPC of that time opens a new load report stream at each assignment: one
		// in each second would leave no time for a report.
		tick = 3 * time.Second
	}
	s.isobar = startTicking(t, tick, `
network: {latency_ms: [{from: us/a, to: us/b, ms: 5}, {from: us, to: eu, ms: 80}]}
services:
- name: split
  localities:
  - {locality: us/a, endpoints: `+at("a")+`}
  - {locality: us/b, endpoints: `+at("b")+`}
- name: small
  max_shed: 0.5
  localities:
  - {locality: us/a, max_rate: 20, endpoints: `+at("a")+`}
  - {locality: us/b, max_rate: 10, endpoints: `+at("b")+`}
- name: tiers
  localities:
  - {locality: us/a, max_rate: 1000, endpoints: `+at("near")+`}
  - {locality: us/b, max_rate: 1000, endpoints: `+at("next")+`}
  - {locality: eu/a, max_rate: 1000, endpoints: `+at("far")+`}
- name: pool
  localities:
  - {locality: us/a, endpoints: `+at("one", "two", "three")+`}
- name: leaving
  localities:
  - {locality: us/a, endpoints: `+at("one")+`}
- name: apart
  orca: {out_of_band: 1s}
  localities:
  - {locality: us/a, max_rate: 1000, endpoints: `+reporting(idle, busy)+`}
- name: measured
  orca: true
  localities:
  - {locality: us/a, max_rate: 1000, endpoints: `+at("one", "two")+`}
`+manyServices(at("one")))
	return s
}

// weights: the load reports of the client become demand, the zone without
// declared capacity keeps 1.25 times the mean, and the client splits its calls
// as it is told.
func (s *site) weights() {
	t := s.t
	c := s.kind.start(t, s.xds, "split")
	c.ready(t)
	var told float64
	await(t, "split of measured demand", func() error {
		c.call(t, callRate)
		_, source, err := s.source("split")
		if err != nil {
			return err
		}
		before := told
		if told = share(source, "us/b"); source.Demand < 0.6*callRate || told < 0.3 || told > 0.45 || math.Abs(told-before) > 0.01 {
			return fmt.Errorf("demand %.0f/s, %.2f to us/b, a second before %.2f", source.Demand, told, before)
		}
		return nil
	})
	seen.ran(s.kind.name, demand, true)
	o := c.call(t, sample)
	if len(o.Failed) > 0 || math.Abs(o.share("b")-told) > tolerance {
		t.Errorf("told to send %.2f to us/b, did %+v", told, o)
	}
	client, err := s.client(c.id)
	if err != nil {
		t.Fatal(err)
	}
	seen.is(s.kind.name, client.Agent, client.APIVersion+", ADS and LRS")
	if client.APIVersion != s.kind.api {
		t.Errorf("it speaks %s, want %s", client.APIVersion, s.kind.api)
	}
	if !client.InSync || client.LRS == nil || client.LRS.LastReport.IsZero() {
		t.Fatalf("the server says of it: %+v, load reports %+v", client, client.LRS)
	}
	if l := client.LRS; l.Rejected > 0 {
		t.Errorf("%d entries of its load reports were left out: %s", l.Rejected, l.Reason)
	}
}

// drops: what does not fit is dropped by the client, and what it drops stays
// demand, neither lost nor counted twice.
func (s *site) drops() {
	t := s.t
	r := startRelay(t, s.xds)
	c := s.kind.start(t, r.address, "small")
	c.ready(t)
	var told float64
	await(t, "drops that have settled", func() error {
		c.call(t, callRate)
		service, source, err := s.source("small")
		if err != nil {
			return err
		}
		before := told
		if told = service.Drop; told < 0.45 || math.Abs(told-before) > 0.02 {
			return fmt.Errorf("demand %.0f/s, dropping %.2f, a second before %.2f", source.Demand, told, before)
		}
		return nil
	})
	// What it is told, and the rate at which it calls, change on a busy machine.
	const parts = 4
	var o outcome
	least, most := told, told
	slowest, fastest := math.Inf(1), 0.0
	for range parts {
		start := time.Now()
		o.add(c.call(t, sample/parts))
		rate := sample / parts / time.Since(start).Seconds()
		slowest, fastest = min(slowest, rate), max(fastest, rate)
		service, _, err := s.source("small")
		if err != nil {
			t.Fatal(err)
		}
		least, most = min(least, service.Drop), max(most, service.Drop)
	}
	if share := float64(total(o.Failed)) / sample; share < least-tolerance || share > most+tolerance {
		t.Errorf("told to drop %.2f to %.2f, dropped %.2f: %+v", least, most, share, o)
	}
	for text := range o.Failed {
		if !strings.Contains(strings.ToLower(text), "drop") {
			t.Errorf("a call failed by something else than a drop: %s", text)
		}
	}
	_, source, err := s.source("small")
	if err != nil {
		t.Fatal(err)
	}
	if source.Demand < 0.75*slowest || source.Demand > 1.25*fastest {
		t.Errorf("demand %.0f/s while dropping, want about %.0f to %.0f", source.Demand, slowest, fastest)
	}
	s.noteReports(r)
}

// failover: the lower tiers take over in order when what is above them dies,
// without a word from the server, and give back what returns.
func (s *site) failover() {
	t := s.t
	c := s.kind.start(t, s.xds, "tiers")
	c.ready(t)
	all := func(name string) {
		t.Helper()
		var last outcome
		await(t, "failover to "+name, func() error {
			if last = c.call(t, 30); last.Served[name] < 30 {
				return fmt.Errorf("%+v", last)
			}
			return nil
		})
	}
	all("near")
	s.backends["near"].kill()
	all("next")
	s.backends["next"].kill()
	all("far")
	s.backends["near"] = startBackend(t, "near", s.backends["near"].address)
	all("near")
}

// health: an endpoint that an operator drains gets no calls, and gets them
// again when that is taken back.
func (s *site) health() {
	t := s.t
	c := s.kind.start(t, s.xds, "pool")
	c.ready(t)
	await(t, "calls to all three", func() error {
		if o := c.call(t, 60); len(o.Served) < 3 {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
	for _, health := range []string{"draining", "unhealthy"} {
		s.isobar.health("pool", s.backends["two"].address, health)
		await(t, "end of calls to an endpoint that is "+health, func() error {
			if o := c.call(t, 60); o.Served["two"] > 0 || len(o.Failed) > 0 || len(o.Served) != 2 {
				return fmt.Errorf("%+v", o)
			}
			return nil
		})
	}
	s.isobar.health("pool", s.backends["two"].address, "")
	await(t, "calls to the endpoint that is back", func() error {
		if o := c.call(t, 60); o.Served["two"] == 0 || len(o.Failed) > 0 {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
}

// orca: a service whose clients weigh endpoints by reported utilization works
// also with clients that can't.
func (s *site) orca() {
	t := s.t
	c := s.kind.start(t, s.xds, "measured")
	c.ready(t)
	await(t, "calls to both", func() error {
		if o := c.call(t, 60); len(o.Served) < 2 || len(o.Failed) > 0 {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
	client, err := s.client(c.id)
	if err != nil {
		t.Fatal(err)
	}
	for kind, state := range client.Types {
		if state.NACK != nil {
			t.Errorf("%s refused: %s", kind, state.NACK.Text)
		}
	}
}

// restart: while the server is dead calls go on by what the client had, and it
// follows the one that starts in its place.
func (s *site) restart() {
	t := s.t
	c := s.kind.start(t, s.xds, "pool")
	c.ready(t)
	away := 2 * time.Second
	if interopAll() {
		away = time.Minute
	}
	s.kill()
	if o := c.call(t, int(away.Seconds()*callRate)); len(o.Failed) > 0 || len(o.Served) != 3 {
		t.Errorf("while the server is dead: %+v", o)
	}
	s.run()
	await(t, "return to the server", func() error {
		o := c.call(t, 50)
		if len(o.Failed) > 0 {
			t.Fatalf("calls failed: %+v", o)
		}
		client, err := s.client(c.id)
		if err == nil && !client.InSync {
			err = fmt.Errorf("%+v", client)
		}
		return err
	})
	s.isobar.health("pool", s.backends["two"].address, "draining")
	await(t, "end of calls to an endpoint that drains", func() error {
		if o := c.call(t, 60); o.Served["two"] > 0 || len(o.Failed) > 0 {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
	s.isobar.health("pool", s.backends["two"].address, "")
}

// many: one client calls 20 services. Some clients open a stream for each of them
// (grpc-java, C-core), others one for all.
func (s *site) many() {
	t := s.t
	names := manyNames()
	c := s.kind.start(t, s.xds, names...)
	await(t, "answers of all services", func() error {
		if o := c.call(t, 2*len(names)); len(o.Failed) > 0 {
			return fmt.Errorf("failed: %v", o.Failed)
		}
		return nil
	})
	await(t, "load of all services", func() error {
		if o := c.call(t, callRate); len(o.Failed) > 0 {
			t.Fatalf("failed: %v", o.Failed)
		}
		for _, name := range names {
			if _, source, err := s.source(name); err != nil || source.Demand < 1 {
				return fmt.Errorf("%s: demand %g, %w", name, source.Demand, err)
			}
		}
		return nil
	})
}

// manyNames: some are as Contour and Envoy Gateway name endpoints.
func manyNames() []string {
	out := make([]string, 20)
	for i := range out {
		out[i] = fmt.Sprintf("many-%02d", i+1)
		if i%5 == 4 {
			out[i] = fmt.Sprintf("many/%02d/http", i+1)
		}
	}
	return out
}

// manyServices are 20 services, as YAML, at the same endpoints.
func manyServices(endpoints string) string {
	var out strings.Builder
	for _, name := range manyNames() {
		fmt.Fprintf(&out, "- {name: %s, localities: [{locality: us/a, endpoints: %s}]}\n", name, endpoints)
	}
	return out.String()
}

func share(source admin.SourceView, locality string) float64 {
	for _, s := range source.Shares {
		if s.Locality.String() == locality {
			return s.Published
		}
	}
	return 0
}
