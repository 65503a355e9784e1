package admin

import (
	"bufio"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/plan"
)

// tick is how often a plan comes by default.
const tick = 5 * time.Second

// planner has one plan.
type planner struct {
	Planner

	plan *plan.Plan
}

func (p *planner) Current() *plan.Plan                               { return p.plan }
func (p *planner) Beat() time.Time                                   { return time.Now() }
func (p *planner) Ticks() (uint64, time.Duration)                    { return p.plan.Version, 0 }
func (p *planner) Reserves() (at time.Time, services []plan.Reserve) { return at, nil }

// nobody is a fleet without clients.
type nobody struct{ Fleet }

func (nobody) Clients() []Client             { return nil }
func (nobody) Subscribers() []ServiceClients { return nil }
func (nobody) UnknownClusters() []string     { return nil }

type objects struct{ Objects }

func (objects) Overrides() []isobar.HealthOverride { return nil }

// configured makes services with localities of one endpoint each.
func configured(services, localities int) *isobar.Topology {
	topology := &isobar.Topology{Revision: 1}
	for i := range services {
		spec := isobar.Service{Name: fmt.Sprintf("service-%05d", i), Mode: isobar.ModeFull}
		for l := range localities {
			spec.Localities = append(spec.Localities, isobar.ServiceLocality{
				Locality: isobar.MustLocality(fmt.Sprintf("r%d/%c", l/3, 'a'+l%3)), MaxRate: 100, Endpoints: []isobar.Endpoint{{Address: "127.0.0.1:80"}},
			})
		}
		topology.Services = append(topology.Services, spec)
	}
	return topology
}

// large makes a plan of services each of whose localities sends. Every service is decided
// again; the demand of the first ones follows the version.
func large(version uint64, topology *isobar.Topology, changed int) *plan.Plan {
	p := &plan.Plan{Version: version, Made: time.Unix(1000, 0), Topology: topology}
	for i := range topology.Services {
		spec := &topology.Services[i]
		r := &assign.Result{Service: spec.Name}
		for l := range spec.Localities {
			here := spec.Localities[l].Locality
			group := &isobar.EndpointGroup{Locality: here, Endpoints: []isobar.WeightedEndpoint{{Address: "127.0.0.1:80", Weight: 1, Health: isobar.Healthy}}}
			r.Sites = append(r.Sites, assign.Site{Group: group, Nominal: 100, Capacity: 100, Ceiling: 0.8, Scale: 1})
			shares := make([]float64, len(spec.Localities))
			shares[l], shares[(l+1)%len(shares)] = 0.9, 0.1
			demand := 40 + float64((l+i)%7)
			if i < changed {
				demand += float64(10 * version)
			}
			r.Sources = append(r.Sources, assign.SourceResult{Source: here, Demand: demand, Target: shares, Shares: shares})
			r.Load = append(r.Load, 50)
		}
		p.Services = append(p.Services, &plan.Service{Spec: spec, Sites: r.Sites, Coverage: 1, Result: r})
	}
	return p
}

// fleetState is the part of a server that readers of changes ask, for a fleet of plans.
func fleetState(tb testing.TB, p *planner) *statusAPI {
	tb.Helper()
	s, err := New(Options{Objects: objects{}, Parser: struct{ Parser }{}, Planner: p, Fleet: nobody{}})
	if err != nil {
		tb.Fatal(err)
	}
	return s.state
}

// BenchmarkConsoles is the work of the server for open consoles at a plan in which every
// service was decided again and one in twenty looks different: the status, the rows, the
// line for all, then writing it to each. The metric core-% is the part of a core that this
// takes at a plan every 5 s.
func BenchmarkConsoles(b *testing.B) {
	for _, services := range []int{1000, 10_000} {
		topology := configured(services, 30)
		plans := []*plan.Plan{large(1, topology, services/20), large(2, topology, services/20)}
		for _, consoles := range []int{1, 50} {
			b.Run(fmt.Sprintf("services=%d/consoles=%d", services, consoles), func(b *testing.B) {
				p := &planner{plan: plans[0]}
				s := fleetState(b, p)
				out := bufio.NewWriterSize(io.Discard, streamBuffer)
				at := time.Now()
				set := s.live.look(b.Context(), s, &liveSet{}, plans[0], at)
				for i := 1; b.Loop(); i++ {
					p.plan, at = plans[i%2], at.Add(tick)
					next := s.live.look(b.Context(), s, set, p.plan, at)
					for range consoles {
						next.write(out, set.number)
					}
					set = next
				}
				b.ReportMetric(100*b.Elapsed().Seconds()/float64(b.N)/tick.Seconds(), "core-%")
			})
		}
	}
}
