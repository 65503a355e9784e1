package wire_test

import (
	"fmt"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/wire"
)

// BenchmarkAssignment converts and checks an assignment of 10 localities with
// 10 endpoints each.
func BenchmarkAssignment(b *testing.B) {
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
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.Assignment(a); err != nil {
			b.Fatal(err)
		}
	}
}
