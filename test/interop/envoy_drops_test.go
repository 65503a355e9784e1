package interop

import (
	"fmt"
	"math"
	"testing"

	vocabulary "github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// Drops begin, change and end at an Envoy with the update that says so, though
// Envoy ignores an update in which nothing but drop_overloads is different. It
// holds in every transport API version that Isobar encodes.
func TestEnvoyFollowsDrops(t *testing.T) {
	t.Parallel()
	const requests = 1000
	for _, version := range envoyVersions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server := startAssignmentServer(t)
			hosts := startHosts(t, 3)
			p := startEnvoy(t, version, assignmentBootstrap(server.address, localityWeighted, "checkout"))
			for i, drop := range []float64{0, 0.51, 0.12, 0.1201, 0.9, 1, 0.25, 0} {
				a := &vocabulary.Assignment{Service: "checkout", Drop: drop, Priorities: [][]vocabulary.LocalityWeight{{
					group("a", 7000, hosts[0], hosts[1]), group("b", 3000, hosts[2]),
				}}}
				e, err := resource.EncodeAssignment(rpc.As{}, "checkout", a)
				if err != nil {
					t.Fatal(err)
				}
				v := server.setEncoded(t, e)
				if i == 0 {
					if err := p.AwaitReady(t.Context(), patience); err != nil {
						t.Fatal(err)
					}
				}
				if text := server.answer(t, v); text != "" {
					t.Fatalf("drop %v is rejected: %s", drop, text)
				}
				want := math.Round(drop*1e4) / 1e4
				// Envoy merges updates of one second that leave the set of hosts as it is.
				await(t, fmt.Sprintf("drop of %v", want), func() error {
					got := p.ask(t, "checkout", requests)
					if seen, sd := float64(got.dropped)/requests, math.Sqrt(want*(1-want)/requests); math.Abs(seen-want) > 5*sd || got.failed > 0 {
						return fmt.Errorf("%v were dropped and %d failed", seen, got.failed)
					}
					return nil
				})
			}
			stats, err := p.Stats(t.Context(), "cluster.checkout.(update_no_rebuild|membership_change|upstream_cx_total)")
			if err != nil {
				t.Fatal(err)
			}
			if stats["cluster.checkout.update_no_rebuild"] != 0 {
				t.Errorf("%d updates were ignored", stats["cluster.checkout.update_no_rebuild"])
			}
			if n := stats["cluster.checkout.membership_change"]; n != 1 {
				t.Errorf("%d changes of the hosts, want the first only", n)
			}
		})
	}
}

// group is a locality of region eu.
func group(zone string, weight uint32, addresses ...string) vocabulary.LocalityWeight {
	g := &vocabulary.EndpointGroup{Locality: vocabulary.Locality{Region: "eu", Zone: zone}}
	for _, at := range addresses {
		g.Endpoints = append(g.Endpoints, vocabulary.WeightedEndpoint{Address: at, Weight: 1, Health: vocabulary.Healthy})
	}
	return vocabulary.LocalityWeight{EndpointGroup: g, Weight: weight}
}
