package load_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// crowded is a service with clients that invent localities beside those that it has.
type crowded struct {
	tab       *load.Table
	clients   []crowdedClient
	inventing bool // else these clients send to one invented locality what they would send to many
}

// crowdedClient sends to the real localities, and to invented ones.
type crowdedClient struct {
	client

	real     []load.LocalityReport
	invented []load.LocalityReport
	joins    int // the interval in which it comes
}

// When clients invent localities, which had a single one before, and when others come whose failures are doubted.
const inventsFrom, lateFrom = 28, 26

// report makes the client's window of an interval.
func (c *crowdedClient) report(k int, inventing bool) load.StreamWindow {
	localities := slices.Clone(c.real)
	if inventing && k >= inventsFrom {
		localities = append(localities, c.invented...)
	} else if len(c.invented) > 0 {
		one := c.invented[0]
		one.Issued *= uint64(len(c.invented))
		one.Succeeded *= uint64(len(c.invented))
		one.Errors *= uint64(len(c.invented))
		localities = append(localities, one)
	}
	return c.window(report(at(float64(k)), load.ServiceReport{Service: "checkout", Interval: interval, Localities: localities}))
}

// tick ends an interval, and returns what is known of the real localities.
func (c *crowded) tick(k int) (s *load.ServiceLoad, known string) {
	var windows []load.StreamWindow
	for i := range c.clients {
		if x := &c.clients[i]; k >= x.joins {
			windows = append(windows, x.report(k, c.inventing))
		}
	}
	c.tab.Merge(windows)
	s = c.tab.Snapshot(at(float64(k))).Service("checkout")
	for _, l := range realLocalities() {
		known += fmt.Sprintf("%v of all: %+v\n", l, s.Observation(l))
		if i := slices.IndexFunc(s.Sites, func(x load.SiteLoad) bool { return x.Locality == l }); i >= 0 {
			known += fmt.Sprintf("landed there: %+v\n", s.Sites[i])
		}
		if i := slices.IndexFunc(s.Futile, func(x load.SiteFutile) bool { return x.Locality == l }); i >= 0 {
			known += fmt.Sprintf("without success: %+v\n", s.Futile[i])
		}
		for _, src := range s.Sources {
			if i := slices.IndexFunc(src.Landed, func(x load.LandedLoad) bool { return x.Locality == l }); i >= 0 {
				known += fmt.Sprintf("from %v: %+v\n", src.Source, src.Landed[i])
			}
		}
	}
	return s, known
}

func realLocalities() []isobar.Locality { return []isobar.Locality{zoneC, zoneA, zoneB} }

// crowdedCase is where and when clients that invent localities come.
type crowdedCase struct {
	source  isobar.Locality // theirs
	region  string          // of what they invent
	first   load.StreamID   // of them
	failing bool            // their requests fail
}

// clients makes the clients of a case, the same for the same seed.
func (c *crowdedCase) clients(seed uint64) []crowdedClient {
	const honest, late, hostile, each = 5, 3, 6, 900
	random := rand.New(rand.NewPCG(seed, 1))
	var out []crowdedClient
	add := func(id load.StreamID, source isobar.Locality, joins, invented int) {
		x := crowdedClient{client: newClient(id, load.AgentEnvoy), joins: joins}
		x.node.ID, x.node.Locality, x.open = fmt.Sprint("node-", id), source, at(float64(max(0, joins-1)))
		for _, l := range realLocalities() {
			if invented > 0 {
				continue
			}
			n := 5 * (100 + random.Uint64N(20))
			r := load.LocalityReport{Locality: &l, Issued: n, HasIssued: true, Succeeded: n, InProgress: 10}
			if joins > 0 {
				r.Errors, r.Succeeded = 100, n-100
			}
			if l == zoneC {
				r.Errors, r.Succeeded = n, 0
			}
			x.real = append(x.real, r)
		}
		for i := range invented {
			r := load.LocalityReport{Locality: &isobar.Locality{Region: c.region, Zone: fmt.Sprint(id), SubZone: fmt.Sprint(i)}, Issued: 5, HasIssued: true}
			if c.failing {
				r.Errors = r.Issued
			} else {
				r.Succeeded = r.Issued
			}
			x.invented = append(x.invented, r)
		}
		out = append(out, x)
	}
	for i := range honest {
		add(load.StreamID(100+i), zoneA, 0, 0)
	}
	for i := range late {
		add(load.StreamID(900+i), zoneA, lateFrom, 0)
	}
	for i := range hostile {
		add(c.first+load.StreamID(i), c.source, 0, each)
	}
	return out
}

// TestInventedLocalitiesHideNoRealOne asserts that what is known of the localities that a service has does not depend on
// how many other ones clients name: a twin of the table hears of a single one.
func TestInventedLocalitiesHideNoRealOne(t *testing.T) {
	for i, c := range []crowdedCase{
		{source: zoneA, region: "a", first: 1},
		{source: zoneA, region: "z", first: 1},
		{source: zoneA, region: "z", first: 500},
		{source: isobar.MustLocality("a/a"), region: "a", first: 1},
		{source: isobar.MustLocality("a/a"), region: "z", first: 500, failing: true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			var tables [2]crowded
			for j := range tables {
				tables[j] = crowded{tab: table(), clients: c.clients(uint64(i)), inventing: j == 1}
				tables[j].tab.SetTopology(realTopology())
			}
			doubted, futile := false, false
			for k := 1; k <= inventsFrom+5; k++ {
				_, want := tables[0].tick(k)
				s, got := tables[1].tick(k)
				if got != want {
					t.Fatalf("interval %d: known of the real localities:\n%swithout invented ones:\n%s", k, got, want)
				}
				if n := len(s.Observations); k >= inventsFrom && (n < 4096 || n > 4096+3) {
					t.Fatalf("interval %d: %d localities are observed, want 4,096 and the real ones", k, n)
				}
				futile = futile || len(s.Futile) > 0
				doubted = doubted || slices.ContainsFunc(s.Sources, func(src load.SourceLoad) bool {
					return slices.ContainsFunc(src.Landed, func(l load.LandedLoad) bool { return l.Doubted != 0 })
				})
			}
			if !doubted || !futile {
				t.Errorf("some client's failures are doubted: %v, some locality fails: %v; want both, or nothing is shown", doubted, futile)
			}
		})
	}
}

// realTopology has the service with its localities.
func realTopology() *isobar.Topology {
	s := isobar.Service{Name: "checkout"}
	for _, l := range realLocalities() {
		s.Localities = append(s.Localities, isobar.ServiceLocality{Locality: l, Endpoints: []isobar.Endpoint{{Address: "10.0.0.1:80"}}})
	}
	return &isobar.Topology{Services: []isobar.Service{s}}
}
