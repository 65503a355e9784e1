package plan_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// told is what each client of a group reports each second.
type told struct {
	rate, errors, held uint64
	at                 string // where its requests land; "" = as assigned
	lost               string // where none of them arrives
}

// grownFleet is a service of three zones of 400 requests/s each, with 90 clients that have a history
// and others that come.
type grownFleet struct {
	t        *testing.T
	topology *isobar.Topology
	decider  *plan.Decider
	now      time.Time
	plan     *plan.Plan
	clients  []fleetClient
}

// fleetClient is a client of a grownFleet.
type fleetClient struct {
	zone, account string
	since         time.Time
	says          *told
}

func newGrownFleet(t *testing.T, says *told) *grownFleet {
	t.Helper()
	w := &grownFleet{t: t, now: t0, decider: plan.NewDecider(time.Second, nil, t0), topology: &isobar.Topology{Services: []isobar.Service{{Name: "s", MaxShed: 0.5}}}}
	s := &w.topology.Services[0]
	for i, z := range []string{"us/a", "us/b", "us/c"} {
		ends := []isobar.Endpoint{{Address: fmt.Sprintf("10.0.%d.1:80", i)}, {Address: fmt.Sprintf("10.0.%d.2:80", i)}}
		s.Localities = append(s.Localities, isobar.ServiceLocality{Locality: loc(z), MaxRate: 400, Endpoints: ends})
	}
	w.topology.Normalize()
	for i := range 90 {
		w.join([]string{"us/a", "us/b", "us/c"}[i%3], fmt.Sprint("address 10.0.0.", i), says)
	}
	w.run(40)
	return w
}

func (w *grownFleet) join(zone, account string, says *told) {
	w.clients = append(w.clients, fleetClient{zone: zone, account: account, since: w.now, says: says})
}

// run lets seconds pass.
func (w *grownFleet) run(seconds int) *plan.Service {
	w.t.Helper()
	for range seconds {
		w.now = w.now.Add(time.Second)
		turn := &plan.Turn{Now: w.now, Interval: time.Second, Topology: w.topology, Health: health.NewTable(nil), Previous: w.plan, Version: 1}
		if w.plan != nil {
			turn.Version = w.plan.Version + 1
		}
		for i := range w.clients {
			c := &w.clients[i]
			zone := loc(c.zone)
			turn.Subscribed = append(turn.Subscribed, load.Subscription{Service: "s", Source: zone, Streams: 1, AckedAt: t0})
			at, errors := w.destination(i), c.says.errors
			if c.says.lost != "" && loc(c.says.lost) == at {
				errors = c.says.rate
			}
			lands := load.LocalityReport{Locality: &at, Issued: c.says.rate, HasIssued: true, Succeeded: c.says.rate - errors, Errors: errors, InProgress: uint32(c.says.held)}
			turn.Windows = append(turn.Windows, load.StreamWindow{
				Stream: load.StreamID(i + 1), Account: c.account, Opened: c.since,
				Node:    load.Node{ID: fmt.Sprint(i), Cluster: "web", Locality: zone, Agent: load.AgentEnvoy},
				Reports: []load.Report{{Arrived: w.now, Services: []load.ServiceReport{{Service: "s", Interval: time.Second, Localities: []load.LocalityReport{lands}}}}},
			})
		}
		next, err := w.decider.Tick(turn)
		if err != nil {
			w.t.Fatal(err)
		}
		w.plan = next
	}
	s, _ := w.plan.Service("s")
	return s
}

// destination is where a client sends its requests: as it is assigned, unless it says otherwise.
func (w *grownFleet) destination(i int) isobar.Locality {
	c := &w.clients[i]
	if c.says.at != "" {
		return loc(c.says.at)
	}
	if s, planned := w.plan.Service("s"); planned {
		if r := s.Result.Source(loc(c.zone)); r != nil {
			place := (float64(i/3) + 0.5) / 30
			if i >= 90 {
				place = (float64(i%10) + 0.5) / 10
			}
			for l, share := range r.Shares {
				if place -= share; place < 0 {
					return s.Sites[l].Group.Locality
				}
			}
		}
	}
	return loc(c.zone)
}

// TestInventedRequestsTakeNoCapacity asserts that what invented clients tell of their requests takes
// no capacity from a zone, and does not empty it.
func TestInventedRequestsTakeNoCapacity(t *testing.T) {
	one := func(int) string { return "address 192.0.2.1" }
	many := func(i int) string { return fmt.Sprint("address 192.0.2.", i) }
	for _, tc := range []struct {
		name    string
		clients int
		account func(int) string
		says    told
		zone    string // of the clients; "" = us/a
		wait    int    // seconds for which they tell what others do
	}{
		{name: "few requests take long", clients: 10, account: one, says: told{rate: 1, held: 3}},
		{name: "many take long", clients: 200, account: one, says: told{rate: 1, held: 1}},
		{name: "they take very long", clients: 200, account: many, says: told{rate: 14, held: 100}},
		{name: "none is in progress", clients: 200, account: many, says: told{rate: 14}},
		{name: "some fail", clients: 20, account: many, says: told{rate: 6, errors: 2, held: 1}},
		{name: "all fail", clients: 20, account: one, says: told{rate: 14, errors: 14, held: 1}},
		{name: "all fail, from many addresses", clients: 20, account: many, says: told{rate: 6, errors: 6, held: 1}},
		{name: "all fail, after 200 reports", clients: 20, account: many, says: told{rate: 6, errors: 6, held: 1}, wait: 200},
		{name: "all fail and take long, from another zone", clients: 20, account: many, says: told{rate: 6, errors: 6, held: 9}, zone: "us/d"},
		{name: "they go elsewhere", clients: 20, account: many, says: told{rate: 6, held: 1, at: "us/b"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newGrownFleet(t, &told{rate: 6, held: 1})
			says := told{rate: 6, held: 1}
			for i := range tc.clients {
				w.join(cmp.Or(tc.zone, "us/a"), tc.account(i), &says)
			}
			w.run(tc.wait)
			says = tc.says
			says.at = cmp.Or(says.at, "us/a")
			for k := range 100 {
				s := w.run(1)
				if s.Result.Drop > 0 {
					t.Fatalf("after %d reports %.3f of all requests is dropped", k+1, s.Result.Drop)
				}
				if serving, failing := s.Serving(), s.FailingIn(); len(serving) != 3 || len(failing) > 0 {
					t.Fatalf("after %d reports requests succeed in %v and fail in %v", k+1, serving, failing)
				}
				for i := range s.Sites {
					if c := s.Sites[i].Capacity; c < 400 {
						t.Fatalf("after %d reports %s counts as %.0f requests/s, want 400 at least", k+1, s.Sites[i].Group.Locality, c)
					}
				}
			}
		})
	}
}

// TestKnownClientsAreHeard asserts that where clients with a history see a zone overloaded, or dead,
// decisions follow at once, whatever others tell that came a moment ago.
func TestKnownClientsAreHeard(t *testing.T) {
	for _, tc := range []struct {
		name   string
		says   told    // what those in us/a say in the end
		within int     // reports
		most   float64 // capacity, requests/s
	}{
		{"overload", told{rate: 6, errors: 3, held: 6, at: "us/a"}, 8, 300},
		{"death", told{rate: 6, errors: 6, at: "us/a"}, 4, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			known := &told{rate: 6, held: 1}
			w := newGrownFleet(t, known)
			mine := *known
			for i := range w.clients {
				if w.clients[i].zone == "us/a" {
					w.clients[i].says = &mine
				}
			}
			for i := range 20 {
				w.join("us/a", fmt.Sprint("address 192.0.2.", i), &told{rate: 9, held: 1, at: "us/a"})
			}
			w.run(20)
			mine = tc.says
			if c := w.run(tc.within).Sites[0].Capacity; c > tc.most {
				t.Errorf("%d reports later us/a counts as %.0f requests/s, want at most %.0f", tc.within, c, tc.most)
			}
		})
	}
}

// TestNewcomersAreHeardWhereNobodyElseIs asserts that what clients tell that came a moment ago counts
// where no client with a history sends anything.
func TestNewcomersAreHeardWhereNobodyElseIs(t *testing.T) {
	w := newGrownFleet(t, &told{rate: 6, held: 1})
	for i := range w.clients {
		if w.clients[i].zone == "us/a" {
			w.clients[i].says = &told{}
		}
	}
	w.run(60)
	says := &told{rate: 6, held: 1}
	for i := range 30 {
		w.join("us/a", fmt.Sprint("address 10.0.1.", i), says)
	}
	w.run(5)
	*says = told{rate: 6, errors: 3, held: 6, at: "us/a"}
	if c := w.run(15).Sites[0].Capacity; c > 250 {
		t.Errorf("us/a is overloaded, and counts as %.0f requests/s", c)
	}
}

// TestAWayThatOnlyNewcomersKnow asserts that the clients of a new zone leave a locality that they
// can't reach, although the requests of all others succeed there.
func TestAWayThatOnlyNewcomersKnow(t *testing.T) {
	w := newGrownFleet(t, &told{rate: 6, held: 1})
	for i := range 10 {
		w.join("us/d", fmt.Sprint("address 10.0.1.", i), &told{rate: 6, held: 1, lost: "us/a"})
	}
	s := w.run(30)
	if r := s.Result.Source(loc("us/d")); r == nil || r.Shares[0] > 0.1 {
		t.Errorf("the source is %+v", r)
	}
	if c := s.Sites[0].Capacity; c < 400 {
		t.Errorf("us/a counts as %.0f requests/s", c)
	}
}
