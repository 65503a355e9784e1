package interop

import (
	"fmt"
	"math/rand/v2"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// randomAssignment draws an assignment over everything that EDS can say about
// where traffic goes. The same seed and number draw the same.
func randomAssignment(seed uint64, number int, hosts []string) *endpointv3.ClusterLoadAssignment {
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	d := &draw{Rand: r, free: hosts}
	r.Shuffle(len(hosts), func(i, j int) { d.free[i], d.free[j] = d.free[j], d.free[i] })
	d.health = oneOf(r, [][]corev3.HealthStatus{
		{corev3.HealthStatus_HEALTHY, corev3.HealthStatus_UNKNOWN},
		{corev3.HealthStatus_HEALTHY, corev3.HealthStatus_HEALTHY, corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_DRAINING},
		{corev3.HealthStatus_HEALTHY, corev3.HealthStatus_DEGRADED, corev3.HealthStatus_UNHEALTHY},
		{corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_TIMEOUT, corev3.HealthStatus_DRAINING, corev3.HealthStatus_HEALTHY},
		{
			corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_HEALTHY, corev3.HealthStatus_UNHEALTHY,
			corev3.HealthStatus_DRAINING, corev3.HealthStatus_TIMEOUT, corev3.HealthStatus_DEGRADED,
		},
	})
	m := rawAssignment(fmt.Sprintf("random-%d", number))
	priority := uint32(0)
	for range 1 + r.IntN(3) {
		for range 1 + r.IntN(3) {
			m.Endpoints = append(m.Endpoints, d.locality(priority))
		}
		priority++
		if r.IntN(10) == 0 {
			priority++ // a gap
		}
	}
	m.Policy = d.policy()
	return m
}

// draw is the state of one assignment that is drawn.
type draw struct {
	*rand.Rand

	free   []string // addresses that are not used yet
	used   []string
	health []corev3.HealthStatus // what this assignment's hosts may have
}

func (d *draw) locality(priority uint32) *endpointv3.LocalityLbEndpoints {
	weight := uint32(1 + d.IntN(9))
	if d.IntN(8) == 0 {
		weight = 0
	}
	l := rawLocality(oneOf(d.Rand, []string{"a", "b", "c", "d", "e", "f", "g"}), priority, weight)
	if d.IntN(20) == 0 {
		l.Locality = nil
	}
	for range d.IntN(5) {
		l.LbEndpoints = append(l.LbEndpoints, rawHost(d.address(), uint32(d.IntN(5)), oneOf(d.Rand, d.health)))
	}
	return l
}

// address is seldom one that stands elsewhere in the assignment.
func (d *draw) address() string {
	if len(d.used) > 0 && (len(d.free) == 0 || d.IntN(30) == 0) {
		return oneOf(d.Rand, d.used)
	}
	at := d.free[0]
	d.free, d.used = d.free[1:], append(d.used, at)
	return at
}

func (d *draw) policy() *endpointv3.ClusterLoadAssignment_Policy {
	p := &endpointv3.ClusterLoadAssignment_Policy{
		WeightedPriorityHealth: d.IntN(3) == 0,
		OverprovisioningFactor: set(oneOf(d.Rand, []uint32{0, 0, 100, 120, 200, 60})),
	}
	if drop := oneOf(d.Rand, []uint32{0, 0, 0, 0, 10, 35}); drop > 0 {
		p.DropOverloads = []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{
			{Category: "lb", DropPercentage: &typev3.FractionalPercent{Numerator: drop}},
		}
	}
	return p
}

func oneOf[T any](r *rand.Rand, choices []T) T { return choices[r.IntN(len(choices))] }

// judge compares counted outcomes of requests with a prediction, by host, by
// locality, by priority and in what was dropped.
func (g *goodness) judge(what string, m *endpointv3.ClusterLoadAssignment, p *dataplane.Prediction, got *tally) {
	passes := p.PassPercent / 100
	passed := got.failed
	for _, n := range got.hosts {
		passed += n
	}
	g.compare(what+", drops", []int{got.dropped, passed}, []float64{1 - passes, passes})
	hosts, localities, priorities := newCells(), newCells(), newCells()
	counted := map[string]bool{}
	for i := range p.Priorities {
		for j := range p.Priorities[i].Localities {
			for _, e := range p.Priorities[i].Localities[j].Endpoints {
				n := 0
				if e.Share > 0 && !counted[e.Address] {
					counted[e.Address] = true
					n = got.hosts[e.Address]
				}
				hosts.add(e.Address, n, e.Share)
				localities.add(fmt.Sprint(i, "/", j), n, e.Share)
				priorities.add(fmt.Sprint(i), n, e.Share)
			}
		}
	}
	for at, n := range got.hosts {
		if !counted[at] {
			hosts.add(at, n, 0)
		}
	}
	for name, c := range map[string]*cells{"host": hosts, "locality": localities, "priority": priorities} {
		c.add("failed", got.failed, max(0, 1-c.sum()))
		g.compare(fmt.Sprintf("%s, by %s (%v of %v)", what, name, c.names, m), c.counts, c.predicted)
	}
}

// cells are outcomes by name.
type cells struct {
	at        map[string]int
	names     []string
	counts    []int
	predicted []float64
}

func newCells() *cells { return &cells{at: map[string]int{}} }

func (c *cells) add(name string, count int, predicted float64) {
	i, ok := c.at[name]
	if !ok {
		i = len(c.names)
		c.at[name] = i
		c.names, c.counts, c.predicted = append(c.names, name), append(c.counts, 0), append(c.predicted, 0)
	}
	c.counts[i] += count
	c.predicted[i] += predicted
}

func (c *cells) sum() float64 {
	s := 0.0
	for _, p := range c.predicted {
		s += p
	}
	return s
}

// predictable returns the plain values of an assignment that a data plane accepts.
func predictable(m *endpointv3.ClusterLoadAssignment, grpc bool) (dataplane.Cluster, bool) {
	if grpc && resource.RefusedByGRPC(m) != nil || !grpc && resource.RefusedByEnvoy(m) != nil {
		return dataplane.Cluster{}, false
	}
	c, err := resource.ClusterFrom(m)
	return c, err == nil
}
