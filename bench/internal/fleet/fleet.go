// Package fleet makes the synthetic fleet that all servers of the benchmark
// serve: the same services, endpoints and weights, and so the same bytes.
package fleet

import (
	"fmt"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// Sizes of the fleet.
const (
	Clusters   = 100
	Localities = 3  // of a cluster
	Endpoints  = 20 // of a cluster in a locality
	Few        = 2  // the same, where responses are to be small
	Zones      = 10 // of clients; each sees weights of its own
)

// Name returns the name of a cluster.
func Name(cluster int) string { return fmt.Sprintf("cluster-%03d", cluster) }

// Names lists the first n clusters.
func Names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = Name(i)
	}
	return out
}

// Zone returns a client zone.
func Zone(zone int) isobar.Locality {
	return isobar.Locality{Region: "region-1", Zone: fmt.Sprintf("zone-%d", zone)}
}

// Assignments is what every zone gets of one cluster, after a number of changes
// of one of its endpoints.
func Assignments(cluster, changes int) [Zones]*isobar.Assignment {
	return AssignmentsOf(Endpoints, cluster, changes)
}

// AssignmentsOf is Assignments with another number of endpoints.
func AssignmentsOf(endpoints, cluster, changes int) [Zones]*isobar.Assignment {
	var groups [Localities]*isobar.EndpointGroup
	for l := range groups {
		g := &isobar.EndpointGroup{Locality: Zone((cluster + l) % Zones)}
		for e := range endpoints {
			g.Endpoints = append(g.Endpoints, isobar.WeightedEndpoint{
				Address: fmt.Sprintf("10.%d.%d.%d:8080", cluster, l, e), Weight: 1, Health: isobar.Healthy,
			})
		}
		groups[l] = g
	}
	if changes > 0 {
		groups[0].Endpoints[0].Address = fmt.Sprintf("10.%d.0.0:%d", cluster, 10_000+changes%50_000)
	}
	var out [Zones]*isobar.Assignment
	for z := range out {
		a := &isobar.Assignment{Service: Name(cluster), Source: Zone(z), OverprovisioningFactor: 140}
		near := uint32(1000 + 100*z)
		a.Priorities = [][]isobar.LocalityWeight{{
			{EndpointGroup: groups[0], Weight: near},
			{EndpointGroup: groups[1], Weight: 3000},
			{EndpointGroup: groups[2], Weight: isobar.WeightScale - 3000 - near},
		}}
		out[z] = a
	}
	return out
}

// Encode encodes an assignment as it goes over the wire.
func Encode(a *isobar.Assignment) (*resource.Encoded, error) {
	m, err := resource.Assignment(a)
	if err != nil {
		return nil, err
	}
	return resource.Encode(a.Service, resource.Endpoints, m)
}
