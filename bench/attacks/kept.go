package main

import (
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"

	"github.com/isobar-xds/isobar/bench/internal/rawclient"
)

// keptAttacks report small enough for each tick, so that the server keeps more with each.
func keptAttacks() []attack {
	return []attack{{
		name: "reports-kept", what: "100 load report streams, each of a service in 900 localities with names of 600 bytes, again each second", shared: reportsBudget,
		do: reportingOn,
	}}
}

// reportingOn opens 100 load report streams, and reports on all of them until the attack ends.
func reportingOn(c *rawclient.Attacker) error {
	const reporting = 100
	ids, messages := make([]uint32, reporting), make([][]byte, reporting)
	for i := range ids {
		n := node()
		n.Id = fmt.Sprintf("%p-%d", c, i)
		m := encoded(&loadstatsv3.LoadStatsRequest{Node: n, ClusterStats: []*endpointv3.ClusterStats{invented(n.GetId(), 900)}})
		messages[i] = rawclient.Framed(compressed(m), true)
		ids[i] = c.Open(reportMethod, [2]string{"grpc-encoding", "gzip"})
	}
	return again(func() error {
		for i, id := range ids {
			if err := c.Message(id, messages[i]); err != nil {
				return err
			}
		}
		if err := c.Flush(); err != nil {
			return err
		}
		<-time.After(time.Second)
		return nil
	})
}

// invented is a report on a service in so many localities that no other one names.
func invented(of string, localities int) *endpointv3.ClusterStats {
	out := &endpointv3.ClusterStats{ClusterName: "checkout"}
	for i := range localities {
		out.UpstreamLocalityStats = append(out.UpstreamLocalityStats, &endpointv3.UpstreamLocalityStats{
			Locality:            &corev3.Locality{Region: fmt.Sprintf("%0200s", of), Zone: fmt.Sprintf("%0200d", i), SubZone: fmt.Sprintf("%0200d", i)},
			TotalIssuedRequests: 10, TotalSuccessfulRequests: 10,
		})
	}
	return out
}
