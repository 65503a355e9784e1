package main

import (
	"bytes"
	"fmt"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isobar-xds/isobar/bench/internal/rawclient"
)

const checkMethod = "/envoy.service.health.v3.HealthDiscoveryService/StreamHealthCheck"

// large is a size of a message just below what the server accepts, bytes.
const large = 3 << 20

// stateAttacks send whole messages of which the server might keep much.
func stateAttacks() []attack {
	return []attack{
		{name: "names-tiny", what: "20 streams that ask for 1,000,000 names of 1 byte", do: func(c *rawclient.Attacker) error {
			m := encoded(&discoveryv3.DiscoveryRequest{Node: node(), TypeUrl: endpointsURL})
			m = append(m, bytes.Repeat([]byte{3<<3 | 2, 1, 'a'}, large/3)...)
			return some(c, 20, adsMethod, func(int) []byte { return m })
		}},
		{
			name: "delta-names", what: "100 delta streams that ask for 20,000 names each", shared: namesBudget,
			do: deltaOf(func(c *rawclient.Attacker, i int) *deltaAsk {
				return &deltaAsk{ResourceNamesSubscribe: namesOf(c, i)}
			}),
		},
		{name: "delta-names-tiny", what: "100 delta streams that ask for 1,000,000 names of 1 byte", do: func(c *rawclient.Attacker) error {
			m := encoded(&discoveryv3.DeltaDiscoveryRequest{Node: node(), TypeUrl: endpointsURL})
			m = append(m, bytes.Repeat([]byte{3<<3 | 2, 1, 'a'}, large/3)...)
			return some(c, 100, deltaMethod, func(int) []byte { return m })
		}},
		{name: "delta-leaves", what: "100 delta streams that leave 20,000 names each", do: deltaOf(func(c *rawclient.Attacker, i int) *deltaAsk {
			return &deltaAsk{ResourceNamesUnsubscribe: namesOf(c, i)}
		})},
		{name: "delta-versions", what: "100 delta streams that show versions of 20,000 names each", do: deltaOf(func(c *rawclient.Attacker, i int) *deltaAsk {
			versions := map[string]string{}
			for _, name := range namesOf(c, i) {
				versions[name] = "1"
			}
			return &deltaAsk{InitialResourceVersions: versions}
		})},
		{name: "node-metadata", what: "100 streams of nodes with 3 MB of metadata", do: func(c *rawclient.Attacker) error {
			return some(c, 100, adsMethod, func(i int) []byte {
				return encoded(&discoveryv3.DiscoveryRequest{Node: described(i), TypeUrl: endpointsURL, ResourceNames: []string{"checkout"}})
			})
		}},
		{name: "node-nested", what: "100 streams of nodes with metadata of 4,900 levels", do: func(c *rawclient.Attacker) error {
			return some(c, 100, adsMethod, func(int) []byte { return nested() })
		}},
		{name: "error-details", what: "100 streams that reject with 3 MB of reasons", do: func(c *rawclient.Attacker) error {
			return some(c, 100, adsMethod, func(int) []byte {
				m := encoded(&discoveryv3.DiscoveryRequest{Node: node(), TypeUrl: endpointsURL, ResourceNames: []string{"checkout"}})
				reason := append([]byte{2<<3 | 2}, field(bytes.Repeat([]byte("x"), large))...)
				return append(append(m, 6<<3|2), field(reason)...)
			})
		}},
		{
			name: "reports-services", what: "100 load report streams, each of 20,000 services", shared: reportsBudget,
			do: reporting(func(i int) []*endpointv3.ClusterStats {
				return statsOf(20_000, 1, func(j int) string { return fmt.Sprintf("%d-%d", i, j) })
			}),
		},
		{
			name: "reports-localities", what: "100 load report streams of a service in 20,000 localities each", shared: reportsBudget,
			do: reporting(func(int) []*endpointv3.ClusterStats {
				return statsOf(1, 20_000, func(int) string { return "checkout" })
			}),
		},
		{
			name: "reports-metrics", what: "100 load report streams with 50,000 metrics each", shared: reportsBudget,
			do: reporting(func(int) []*endpointv3.ClusterStats {
				return withMetrics(statsOf(1, 1, func(int) string { return "checkout" }), 50_000)
			}),
		},
		{name: "checkers", what: "500 checkers that can do 100,000 things each", do: func(c *rawclient.Attacker) error {
			return some(c, 500, checkMethod, func(i int) []byte {
				n := node()
				n.Id = fmt.Sprintf("checker-%p-%d", c, i)
				return encoded(&healthv3.HealthCheckRequestOrEndpointHealthResponse{RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_HealthCheckRequest{
					HealthCheckRequest: &healthv3.HealthCheckRequest{
						Node: n, Capability: &healthv3.Capability{HealthCheckProtocols: make([]healthv3.Capability_Protocol, 100_000)},
					},
				}})
			})
		}},
	}
}

// some opens so many streams, one after the other, with a message each.
func some(c *rawclient.Attacker, n int, method string, message func(i int) []byte) error {
	for i := range n {
		if err := c.Message(c.Open(method), rawclient.Framed(message(i), false)); err != nil {
			return err
		}
	}
	return nil
}

type deltaAsk = discoveryv3.DeltaDiscoveryRequest

// deltaOf opens 100 delta streams with a request each.
func deltaOf(request func(c *rawclient.Attacker, i int) *deltaAsk) func(c *rawclient.Attacker) error {
	return func(c *rawclient.Attacker) error {
		return some(c, 100, deltaMethod, func(i int) []byte {
			m := request(c, i)
			m.Node, m.TypeUrl = node(), endpointsURL
			return encoded(m)
		})
	}
}

// namesOf are 20,000 names of a stream.
func namesOf(c *rawclient.Attacker, stream int) []string {
	names := make([]string, 20_000)
	for i := range names {
		names[i] = fmt.Sprintf("%d-%d-%p", stream, i, c)
	}
	return names
}

// reporting opens 100 load report streams that report what stats says.
func reporting(stats func(i int) []*endpointv3.ClusterStats) func(c *rawclient.Attacker) error {
	return func(c *rawclient.Attacker) error {
		return some(c, 100, reportMethod, func(i int) []byte {
			n := node()
			n.Id = fmt.Sprintf("%p-%d", c, i)
			return encoded(&loadstatsv3.LoadStatsRequest{Node: n, ClusterStats: stats(i)})
		})
	}
}

func statsOf(services, localities int, name func(int) string) []*endpointv3.ClusterStats {
	out := make([]*endpointv3.ClusterStats, services)
	for i := range out {
		out[i] = &endpointv3.ClusterStats{ClusterName: name(i)}
		for j := range localities {
			out[i].UpstreamLocalityStats = append(out[i].UpstreamLocalityStats, &endpointv3.UpstreamLocalityStats{
				Locality: &corev3.Locality{Region: "us", Zone: fmt.Sprint(j)}, TotalIssuedRequests: 10, TotalSuccessfulRequests: 10,
			})
		}
	}
	return out
}

// withMetrics adds so many metrics to the first locality of each.
func withMetrics(stats []*endpointv3.ClusterStats, n int) []*endpointv3.ClusterStats {
	for _, s := range stats {
		l := s.GetUpstreamLocalityStats()[0]
		for j := range n {
			l.LoadMetricStats = append(l.LoadMetricStats, &endpointv3.EndpointLoadMetricStats{
				MetricName: fmt.Sprint("metric-", j), NumRequestsFinishedWithMetric: 1, TotalMetricValue: 1,
			})
		}
	}
	return stats
}

// described is a node with much metadata.
func described(i int) *corev3.Node {
	n := node()
	n.Id = fmt.Sprint("node-", i)
	n.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for j := range large / 64 {
		n.Metadata.Fields[fmt.Sprintf("%040d", j)] = structpb.NewBoolValue(true)
	}
	return n
}

// nested is a request of a node whose metadata are lists in lists, almost as deep as
// protobuf reads them.
var nested = sync.OnceValue(func() []byte {
	var list []byte // a google.protobuf.ListValue
	for range 4_900 {
		value := append([]byte{6<<3 | 2}, field(list)...)
		list = append([]byte{1<<3 | 2}, field(value)...)
	}
	value := append([]byte{6<<3 | 2}, field(list)...)
	entry := append([]byte{1<<3 | 2, 1, 'a', 2<<3 | 2}, field(value)...)
	metadata := append([]byte{1<<3 | 2}, field(entry)...)
	n := append(encoded(node()), 3<<3|2)
	n = append(n, field(metadata)...)
	m := append([]byte{2<<3 | 2}, field(n)...)
	return append(m, encoded(&discoveryv3.DiscoveryRequest{TypeUrl: endpointsURL, ResourceNames: []string{"checkout"}})...)
})

// field is the length and the bytes of a field.
func field(b []byte) (to []byte) {
	n := len(b)
	for n >= 0x80 {
		to = append(to, byte(n)|0x80)
		n >>= 7
	}
	return append(append(to, byte(n)), b...)
}
