package admin

import (
	"bufio"
	"context"
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

func (p *planner) Current() *plan.Plan { return p.plan }
func (p *planner) Beat() time.Time     { return time.Now() }

// nobody is a fleet without clients.
type nobody struct{ Fleet }

func (nobody) Clients() []Client             { return nil }
func (nobody) Subscribers() []ServiceClients { return nil }
func (nobody) UnknownClusters() []string     { return nil }

type objects struct{ Objects }

func (objects) Overrides() []isobar.HealthOverride { return nil }

// large makes a plan of services with localities, each of which sends.
func large(version uint64, services, localities int, topology *isobar.Topology) *plan.Plan {
	p := &plan.Plan{Version: version, Made: time.Unix(1000, 0), Topology: topology}
	for i := range topology.Services[:services] {
		spec := &topology.Services[i]
		r := &assign.Result{Service: spec.Name}
		for l := range localities {
			name := isobar.MustLocality(fmt.Sprintf("r%d/%c", l/3, 'a'+l%3))
			r.Sites = append(r.Sites, assign.Site{Group: &isobar.EndpointGroup{Locality: name}, Nominal: 100, Capacity: 100, Ceiling: 0.8, Scale: 1})
			shares := make([]float64, localities)
			shares[l], shares[(l+1)%localities] = 0.9, 0.1
			r.Sources = append(r.Sources, assign.SourceResult{Source: name, Demand: float64(40 + (int(version)+l+i)%7), Target: shares, Shares: shares})
			r.Load = append(r.Load, 50)
		}
		p.Services = append(p.Services, &plan.Service{Spec: spec, Sites: r.Sites, Coverage: 1, Result: r})
	}
	return p
}

// BenchmarkConsoles is the work of the server for open consoles at a plan in which every
// service changed: encoding once for all, then writing to each. The metric core-% is the
// part of a core that this takes at a plan every 5 s.
func BenchmarkConsoles(b *testing.B) {
	const localities = 30
	for _, services := range []int{1000, 10_000} {
		topology := &isobar.Topology{Revision: 1}
		for i := range services {
			topology.Services = append(topology.Services, isobar.Service{Name: fmt.Sprintf("service-%05d", i)})
		}
		plans := []*plan.Plan{large(1, services, localities, topology), large(2, services, localities, topology)}
		for _, consoles := range []int{1, 50} {
			b.Run(fmt.Sprintf("services=%d/consoles=%d", services, consoles), func(b *testing.B) {
				p := &planner{plan: plans[0]}
				s, err := New(Options{
					Objects: objects{}, Parser: struct{ Parser }{}, Planner: p,
					Fleet: nobody{},
				})
				if err != nil {
					b.Fatal(err)
				}
				out := bufio.NewWriterSize(io.Discard, streamBuffer)
				known := s.state.live.now(context.Background(), s.state).number
				i := 0
				for b.Loop() {
					i++
					p.plan = plans[i%2]
					set := s.state.live.now(context.Background(), s.state)
					for range consoles {
						set.write(out, known)
					}
					known = set.number
				}
				b.ReportMetric(100*b.Elapsed().Seconds()/float64(b.N)/tick.Seconds(), "core-%")
			})
		}
	}
}
