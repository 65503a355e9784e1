package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
)

// playStations compares the mean latency of rates with that of single requests in
// one locality of 8 endpoints, by utilization, servers of each, and variation of
// the service time.
func playStations(ctx context.Context, out io.Writer) error {
	fmt.Fprintln(out, "\nstations: mean latency of rates, as a part of that of single requests (8 endpoints, 20 ms, timeout 1 s, 12 clients in turn)")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "SERVERS\tVARIATION")
	used := []float64{0.5, 0.7, 0.8, 0.9, 1, 1.2}
	for _, u := range used {
		fmt.Fprintf(t, "\t%.0f%%", 100*u)
	}
	fmt.Fprintln(t)
	for _, servers := range []int{1, 4, 16, 64} {
		for _, variation := range []float64{0.01, 0.5, 1, 4} {
			fmt.Fprintf(t, "%d\t%g", servers, variation)
			for _, u := range used {
				var ms [2]float64
				for i, single := range []bool{false, true} {
					r, err := sim.Run(ctx, station(servers, variation, u, single), clairvoyant(), nil)
					if err != nil {
						return err
					}
					ms[i] = r.MeanMS
				}
				fmt.Fprintf(t, "\t%.2f", ms[0]/ms[1])
			}
			fmt.Fprintln(t)
		}
	}
	return t.Flush()
}

func station(servers int, variation, used float64, single bool) *sim.Scenario {
	const pods, service = 8, 0.02
	here := isobar.Locality{Region: "us", Zone: "a"}
	rate := float64(pods*servers) / service
	sl := isobar.ServiceLocality{Locality: here, MaxRate: rate, Concurrency: float64(pods * servers)}
	for i := range pods {
		sl.Endpoints = append(sl.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.0.0.%d:80", i+1)})
	}
	sc := &sim.Scenario{
		Seed: 1, Length: 3 * time.Minute, Warmup: time.Minute, Tick: 5 * time.Second, Interval: 5 * time.Second,
		Requests: single, Timeout: time.Second, Serving: []sim.Serving{{Variation: variation}},
		Topology: &isobar.Topology{Revision: 1, Services: []isobar.Service{{Name: "web", Localities: []isobar.ServiceLocality{sl}}}},
		Sources:  []sim.Source{{Service: "web", From: here, Clients: 12, Demand: sim.Constant(used * rate)}},
	}
	sc.Topology.Normalize()
	return sc
}
