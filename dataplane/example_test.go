package dataplane_test

import (
	"fmt"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
)

// A third of the first priority is healthy: Envoy keeps 1.4 times as much there,
// its overprovisioning factor, and gRPC everything while one endpoint is usable.
func ExamplePredictAll() {
	zone := func(name string, health ...isobar.HealthStatus) dataplane.Priority {
		l := dataplane.Locality{Locality: isobar.MustLocality(name), Weight: 1}
		for i, h := range health {
			l.Endpoints = append(l.Endpoints, dataplane.Endpoint{Address: fmt.Sprintf("10.0.0.%d:80", i+1), Health: h})
		}
		return dataplane.Priority{Localities: []dataplane.Locality{l}}
	}
	cluster := dataplane.Cluster{Priorities: []dataplane.Priority{
		zone("us-east/a", isobar.Healthy, isobar.Unhealthy, isobar.Unhealthy),
		zone("us-east/b", isobar.Healthy, isobar.Healthy, isobar.Healthy),
	}}
	both := dataplane.PredictAll(cluster, dataplane.DefaultOptions())
	for p := range cluster.Priorities {
		fmt.Printf("priority %d: Envoy sends %d%%, gRPC %d%%\n", p, both.Envoy.Priorities[p].Load, both.GRPC.Priorities[p].Load)
	}
	// Output:
	// priority 0: Envoy sends 46%, gRPC 100%
	// priority 1: Envoy sends 54%, gRPC 0%
}
