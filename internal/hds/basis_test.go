package hds_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/health"
)

// Whatever changed on the way, and whatever of it was no news: what a checker that
// stayed was told last is what one that comes now is told.
func TestToldAsANewcomer(t *testing.T) {
	for seed := range uint64(20) {
		inBubble(t, hds.Options{Interval: every(2 * time.Second)}, func(h *harness) {
			rng := rand.New(rand.NewPCG(seed, 0))
			var told atomic.Pointer[healthv3.HealthCheckSpecifier]
			messages := 0
			c := h.enter("stays", "r/a")
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					m, err := c.stream.Recv()
					if err != nil {
						return
					}
					told.Store(m)
					messages++
				}
			}()
			world := topology(service("a", 1), service("b", 2), service("c", 3), service("d", 4))
			for step := range 25 {
				world = altered(rng, world)
				keys := all(world, "stays")[0].Endpoints
				if rng.IntN(3) == 0 { // it probes a part only
					keys = slices.DeleteFunc(slices.Clone(keys), func(health.Key) bool { return rng.IntN(2) == 0 })
				}
				id := fmt.Sprintf("new-%d", step)
				h.srv.Designate(world, []health.Designation{{Checker: id, Endpoints: keys}, {Checker: "stays", Endpoints: keys}})
				pass(10 * time.Second) // it is not told too often, and services drain
				n := h.enter(id, "r/b")
				want := n.recv().GetClusterHealthChecks()
				if got := told.Load().GetClusterHealthChecks(); !slices.EqualFunc(got, want, func(a, b *healthv3.ClusterHealthCheck) bool { return proto.Equal(a, b) }) {
					t.Fatalf("seed %d, step %d: told %v\na newcomer %v", seed, step, got, want)
				}
				n.leave()
			}
			c.leave()
			<-done
			if messages < 5 || messages > 60 {
				t.Errorf("seed %d: %d messages after 25 changes", seed, messages)
			}
		})
	}
}

// altered changes one service, or none: parts that stay keep their identity.
func altered(rng *rand.Rand, t *isobar.Topology) *isobar.Topology {
	out := *t
	out.Services = slices.Clone(t.Services)
	if len(out.Services) == 0 {
		return topology(service("a", 1), service("b", 2))
	}
	i := rng.IntN(len(out.Services))
	s := &out.Services[i]
	switch rng.IntN(6) {
	case 0: // nothing that concerns checkers
		s.MaxShed = rng.Float64()
	case 1: // the same, in other memory
		s.Localities = slices.Clone(s.Localities)
	case 2: // another endpoint
		s.Localities = slices.Clone(s.Localities)
		l := &s.Localities[rng.IntN(len(s.Localities))]
		l.Endpoints = append(slices.Clone(l.Endpoints), isobar.Endpoint{Address: fmt.Sprintf("10.9.%d.%d:80", i, 1+rng.IntN(250))})
	case 3: // probed otherwise
		check := tcpCheck()
		check.UnhealthyThreshold = 2 + uint32(rng.IntN(3))
		s.HealthChecks = []isobar.HealthCheck{check}
	case 4: // without the endpoints of a locality
		s.Localities = slices.Clone(s.Localities)
		s.Localities[rng.IntN(len(s.Localities))].Endpoints = nil
	case 5:
		out.Services = slices.Delete(out.Services, i, i+1)
	}
	return &out
}
