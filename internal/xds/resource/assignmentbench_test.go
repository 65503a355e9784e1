package resource_test

import (
	"fmt"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// BenchmarkEncodeAssignment checks and encodes an assignment of 10 localities
// with 10 endpoints each.
func BenchmarkEncodeAssignment(b *testing.B) {
	a := bigAssignment()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := resource.EncodeAssignment(rpc.As{}, a.Service, a); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAssignment makes messages of it first.
func BenchmarkAssignment(b *testing.B) {
	a := bigAssignment()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := encodeByMessages(rpc.As{}, a.Service, a); err != nil {
			b.Fatal(err)
		}
	}
}

func bigAssignment() *isobar.Assignment {
	a := &isobar.Assignment{Service: "checkout", OverprovisioningFactor: 140}
	var localities []isobar.LocalityWeight
	for l := range 10 {
		g := &isobar.EndpointGroup{Locality: isobar.MustLocality(fmt.Sprintf("us/%d", l))}
		for e := range 10 {
			g.Endpoints = append(g.Endpoints, isobar.WeightedEndpoint{Address: fmt.Sprintf("10.0.%d.%d:8080", l, e), Weight: 1, Health: isobar.Healthy})
		}
		localities = append(localities, isobar.LocalityWeight{EndpointGroup: g, Weight: 1000})
	}
	a.Priorities = [][]isobar.LocalityWeight{localities}
	return a
}
