package sim

import (
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/policy"
)

// central is a control plane that places load by a rule of thumb: it gets the
// same reports with the same delays as Isobar, and its pushes take as long. It
// does not pace.
type central struct {
	idle

	w     *world
	flow  policy.Func
	table *load.Table
	seen  *load.Snapshot
}

func newCentral(flow policy.Func) maker {
	return func(w *world) (balancer, error) {
		w.reports = true
		return &central{w: w, flow: flow, table: load.NewTable(load.Settings{Interval: w.sc.Interval}, nil, startTime)}, nil
	}
}

func (b *central) tick(now time.Duration) error {
	b.table.Merge(collect(b.w.services, now, nil))
	b.seen = b.table.Snapshot(startTime.Add(now))
	return b.decide(now)
}

func (b *central) health(now time.Duration) error { return b.decide(now) }

// leastDemand lets sources without demand have an answer, requests/s.
const leastDemand = 1e-3

func (b *central) decide(now time.Duration) error {
	for _, s := range b.w.services {
		demand := make([]float64, len(s.groups))
		measured := b.seen.Service(s.spec.Name)
		for i, g := range s.groups {
			demand[i] = leastDemand
			if l := measured.Source(g.source); l != nil {
				demand[i] = max(leastDemand, l.Demand)
			}
		}
		p := s.problem(demand, s.declared())
		flows, err := b.flow(p)
		if err != nil {
			return err
		}
		for i, g := range s.groups {
			b.w.publish(g, g.assigned(flows[i]), now)
		}
	}
	return nil
}

// assigned turns flows into weights, with everything else as one lower tier. It
// is the group's present assignment where that is the same.
func (g *group) assigned(flows []float64) *isobar.Assignment {
	s := g.service
	sum := 0.0
	for _, f := range flows {
		sum += f
	}
	a := &isobar.Assignment{
		Service: s.spec.Name, Source: g.source,
		OverprovisioningFactor: dataplane.DefaultOverprovisioningFactor,
	}
	var first, rest []isobar.LocalityWeight
	for i, f := range flows {
		lw := isobar.LocalityWeight{EndpointGroup: s.endpointGroup(i)}
		if sum > 0 {
			lw.Weight = uint32(math.Round(isobar.WeightScale * f / sum))
		}
		if lw.Weight > 0 {
			first = append(first, lw)
			continue
		}
		lw.Weight = uint32(len(lw.Endpoints)) //nolint:gosec // a count
		rest = append(rest, lw)
	}
	for _, tier := range [][]isobar.LocalityWeight{first, rest} {
		if len(tier) > 0 {
			a.Priorities = append(a.Priorities, tier)
		}
	}
	if g.assignment != nil && slices.EqualFunc(a.Priorities, g.assignment.Priorities, sameTier) {
		return g.assignment
	}
	return a
}

func sameTier(a, b []isobar.LocalityWeight) bool {
	return slices.EqualFunc(a, b, func(x, y isobar.LocalityWeight) bool {
		return x.Weight == y.Weight && x.Locality == y.Locality && slices.EqualFunc(x.Endpoints, y.Endpoints,
			func(e, f isobar.WeightedEndpoint) bool { return e.Address == f.Address && e.Health == f.Health })
	})
}

// latencyRings are those that services of a large fleet are known to use: near
// localities first, the next ring as soon as one is used to so much.
var latencyRings = []policy.Ring{{MS: 5, Full: 0.55}, {MS: 35, Full: 0.65}, {MS: math.MaxFloat64, Full: 0.80}}

func byRings(p policy.Problem) (policy.Flows, error) { return policy.Rings(p, latencyRings) }
