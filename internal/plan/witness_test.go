package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// sayings is what each client of a group reports each second.
type sayings struct {
	rate, errors, held uint64
	at                 string // where its requests land; "" = in its own zone
}

// settlement is a service of three zones of 400 requests/s each, with 90 clients that have a history
// and others that come.
type settlement struct {
	t        *testing.T
	topology *isobar.Topology
	decider  *plan.Decider
	now      time.Time
	plan     *plan.Plan
	clients  []resident
}

// resident is a client of a settlement.
type resident struct {
	zone, account string
	since         time.Time
	says          *sayings
}

func settle(t *testing.T, says *sayings) *settlement {
	t.Helper()
	w := &settlement{t: t, now: t0, decider: plan.NewDecider(time.Second, nil, t0), topology: &isobar.Topology{Services: []isobar.Service{{Name: "s", MaxShed: 0.5}}}}
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

func (w *settlement) join(zone, account string, says *sayings) {
	w.clients = append(w.clients, resident{zone: zone, account: account, since: w.now, says: says})
}

// run lets seconds pass.
func (w *settlement) run(seconds int) *plan.Service {
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
			turn.Watched = append(turn.Watched, plan.Watched{Service: "s", Source: zone, Streams: 1, Acked: t0})
			at := w.destination(i)
			lands := load.LocalityReport{Locality: &at, Issued: c.says.rate, HasIssued: true, Succeeded: c.says.rate - c.says.errors, Errors: c.says.errors, InProgress: uint32(c.says.held)}
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
func (w *settlement) destination(i int) isobar.Locality {
	c := &w.clients[i]
	if c.says.at != "" {
		return loc(c.says.at)
	}
	if s, planned := w.plan.Service("s"); planned {
		if r := s.Result.Source(loc(c.zone)); r != nil {
			place := (float64(i/3%30) + 0.5) / 30
			for l, share := range r.Shares {
				if place -= share; place < 0 {
					return s.Sites[l].Group.Locality
				}
			}
		}
	}
	return loc(c.zone)
}

// What invented clients say of their requests takes no capacity from a zone, and adds no more than
// what others get served there.
func TestInventedRequestsMoveNoCapacity(t *testing.T) {
	one := func(int) string { return "address 192.0.2.1" }
	many := func(i int) string { return fmt.Sprint("address 192.0.2.", i) }
	for _, tc := range []struct {
		name    string
		clients int
		account func(int) string
		says    sayings
	}{
		{"few requests take long", 10, one, sayings{rate: 1, held: 3, at: "us/a"}},
		{"many take long", 200, one, sayings{rate: 1, held: 1, at: "us/a"}},
		{"they take very long", 200, many, sayings{rate: 14, held: 100, at: "us/a"}},
		{"none is in progress", 200, many, sayings{rate: 14, at: "us/a"}},
		{"some fail", 20, many, sayings{rate: 6, errors: 2, held: 1, at: "us/a"}},
		{"all fail", 20, one, sayings{rate: 14, errors: 14, held: 1, at: "us/a"}},
		{"all fail, from many addresses", 20, many, sayings{rate: 6, errors: 6, held: 1, at: "us/a"}},
		{"they go elsewhere", 20, many, sayings{rate: 6, held: 1, at: "us/b"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := settle(t, &sayings{rate: 6, held: 1})
			for i := range tc.clients {
				w.join("us/a", tc.account(i), &tc.says)
			}
			for k := range 100 {
				s := w.run(1)
				if s.Result.Drop > 0 {
					t.Fatalf("after %d reports %.3f of all requests is dropped", k+1, s.Result.Drop)
				}
				if serving, failing := s.Serving(), s.FailingIn(); len(serving) != 3 || len(failing) > 0 {
					t.Fatalf("after %d reports requests succeed in %v and fail in %v", k+1, serving, failing)
				}
				for i := range s.Sites {
					if c := s.Sites[i].Capacity; c < 400 || c > 800 {
						t.Fatalf("after %d reports %s counts as %.0f requests/s, want 400 to 800", k+1, s.Sites[i].Group.Locality, c)
					}
				}
			}
		})
	}
}

// Clients with a history that see a zone overloaded, or dead, are heard at once, whatever others say
// that came a moment ago.
func TestKnownClientsAreHeard(t *testing.T) {
	for _, tc := range []struct {
		name   string
		says   sayings // what those in us/a say in the end
		within int     // reports
		most   float64 // capacity, requests/s
	}{
		{"overload", sayings{rate: 6, errors: 3, held: 6, at: "us/a"}, 8, 300},
		{"death", sayings{rate: 6, errors: 6, at: "us/a"}, 4, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			known := &sayings{rate: 6, held: 1}
			w := settle(t, known)
			mine := *known
			for i := range w.clients {
				if w.clients[i].zone == "us/a" {
					w.clients[i].says = &mine
				}
			}
			for i := range 20 {
				w.join("us/a", fmt.Sprint("address 192.0.2.", i), &sayings{rate: 9, held: 1, at: "us/a"})
			}
			w.run(20)
			mine = tc.says
			if c := w.run(tc.within).Sites[0].Capacity; c > tc.most {
				t.Errorf("%d reports later us/a counts as %.0f requests/s, want at most %.0f", tc.within, c, tc.most)
			}
		})
	}
}

// Where nobody with a history sends anything, clients that came a moment ago are heard.
func TestNewcomersAreHeardWhereNobodyElseIs(t *testing.T) {
	w := settle(t, &sayings{rate: 6, held: 1})
	for i := range w.clients {
		if w.clients[i].zone == "us/a" {
			w.clients[i].says = &sayings{}
		}
	}
	w.run(60)
	says := &sayings{rate: 6, held: 1}
	for i := range 30 {
		w.join("us/a", fmt.Sprint("address 10.0.1.", i), says)
	}
	w.run(5)
	*says = sayings{rate: 6, errors: 3, held: 6, at: "us/a"}
	if c := w.run(15).Sites[0].Capacity; c > 250 {
		t.Errorf("us/a is overloaded, and counts as %.0f requests/s", c)
	}
}
