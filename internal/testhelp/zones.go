package testhelp

import (
	"fmt"
	"testing"

	"github.com/isobar-xds/isobar"
)

// FourZones is service "checkout" in two zones of each of two regions, with four
// endpoints each that carry 1000 requests/s together, which is 800 beneath the
// default ceiling. The regions are 80 ms apart; clients in us/c, where nothing is
// served, are 1 ms from us/a and 1.9 ms from us/b.
func FourZones(tb testing.TB) *isobar.Topology {
	tb.Helper()
	network, err := isobar.NewNetwork([]isobar.LatencyRule{
		{From: isobar.MustLocality("us"), To: isobar.MustLocality("eu"), MS: 80},
		{From: isobar.MustLocality("us/c"), To: isobar.MustLocality("us/a"), MS: 1},
		{From: isobar.MustLocality("us/c"), To: isobar.MustLocality("us/b"), MS: 1.9},
	})
	if err != nil {
		tb.Fatal(err)
	}
	s := isobar.Service{Name: "checkout"}
	for i, zone := range []string{"eu/a", "eu/b", "us/a", "us/b"} {
		sl := isobar.ServiceLocality{Locality: isobar.MustLocality(zone), MaxRate: 1000, Concurrency: 40}
		for e := range 4 {
			sl.Endpoints = append(sl.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.%d.0.%d:80", i, e+1)})
		}
		s.Localities = append(s.Localities, sl)
	}
	return &isobar.Topology{Revision: 1, Network: network, Services: []isobar.Service{s}}
}
