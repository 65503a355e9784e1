package main

import (
	"bytes"
	"compress/gzip"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"

	"golang.org/x/net/http2"

	"github.com/isobar-xds/isobar/bench/internal/rawclient"
)

// variantAttacks are those of other attacks that go another way into the server.
//
//nolint:funlen // a table
func variantAttacks() []attack {
	return []attack{
		{name: "reports-gzip", what: "1,000 load report streams, each of 20,000 services, compressed", shared: reportsBudget, do: func(c *rawclient.Attacker) error {
			m := rawclient.Framed(compressed(encoded(&loadstatsv3.LoadStatsRequest{
				Node: node(), ClusterStats: statsOf(20_000, 1, func(j int) string { return fmt.Sprint("service-", j) }),
			})), true)
			return every(c, func() error {
				return c.Message(c.Open(reportMethod, [2]string{"grpc-encoding", "gzip"}), m)
			})
		}},
		{
			name: "reports-known", what: "1,000 load report streams, each of one service 20,000 times, compressed", shared: reportsBudget,
			do: reportingGzip(func() []*endpointv3.ClusterStats {
				return statsOf(20_000, 1, func(int) string { return "checkout" })
			}),
		},
		{
			name: "reports-many-metrics", what: "1,000 load report streams with 50,000 metrics each, compressed", shared: reportsBudget,
			do: reportingGzip(func() []*endpointv3.ClusterStats {
				return withMetrics(statsOf(1, 1, func(int) string { return "checkout" }), 50_000)
			}),
		},
		{
			name: "reports-endpoints", what: "1,000 load report streams with 20,000 endpoints in 100 tiers each, compressed", shared: reportsBudget,
			do: reportingGzip(func() []*endpointv3.ClusterStats { return withEndpoints(100, 200) }),
		},
		{
			name: "reports-v2", what: "100 streams of the v2 API, each of 10,000 services with 5 endpoints", shared: reportsBudget,
			do: func(c *rawclient.Attacker) error {
				return some(c, 100, "/envoy.service.load_stats.v2.LoadReportingService/StreamLoadStats", func(i int) []byte {
					n := node()
					n.Id = fmt.Sprintf("%p-%d", c, i)
					stats := statsOf(10_000, 1, func(j int) string { return fmt.Sprintf("%d-%d", i, j) })
					for _, s := range stats {
						s.GetUpstreamLocalityStats()[0].UpstreamEndpointStats = endpointStats(5)
					}
					return encoded(&loadstatsv3.LoadStatsRequest{Node: n, ClusterStats: stats})
				})
			},
		},
		{name: "delta-versions-gzip", what: "1,000 delta streams that show versions of 20,000 names each, compressed", do: func(c *rawclient.Attacker) error {
			versions := map[string]string{}
			for _, name := range namesOf(c, 0) {
				versions[name] = "1"
			}
			m := rawclient.Framed(compressed(encoded(&deltaAsk{Node: node(), TypeUrl: endpointsURL, InitialResourceVersions: versions})), true)
			return every(c, func() error {
				return c.Message(c.Open(deltaMethod, [2]string{"grpc-encoding", "gzip"}), m)
			})
		}},
		{name: "rejections", what: "100 streams that reject with 3 MB of reasons, again and again", do: rejecting},
		{
			name: "names-change", what: "100 streams that ask for other 20,000 names in each of 10 requests", shared: namesBudget,
			do: func(c *rawclient.Attacker) error {
				for i := range 100 {
					var all []byte
					for j := range 10 {
						m := &discoveryv3.DiscoveryRequest{Node: node(), TypeUrl: endpointsURL, ResourceNames: namesOf(c, 10*i+j)}
						all = append(all, rawclient.Framed(encoded(m), false)...)
					}
					if err := c.Message(c.Open(adsMethod), all); err != nil {
						return err
					}
				}
				return nil
			},
		},
		{name: "names-fetched", what: "single requests for 20,000 names each without end", do: func(c *rawclient.Attacker) error {
			i := 0
			return again(func() error {
				i++
				id := c.Open(fetchMethod)
				m := &discoveryv3.DiscoveryRequest{Node: node(), TypeUrl: endpointsURL, ResourceNames: namesOf(c, i)}
				if err := c.Message(id, rawclient.Framed(encoded(m), false)); err != nil {
					return err
				}
				c.Frame(http2.FrameData, http2.FlagDataEndStream, id, nil)
				return nil
			})
		}},
		{name: "status-matchers", what: "100 streams that ask for the status of clients by 3 MB of matchers", do: func(c *rawclient.Attacker) error {
			m := bytes.Repeat([]byte{1<<3 | 2, 0}, 30_000)
			m = append(m, 1<<3|2)
			m = append(m, field(append([]byte{1<<3 | 2}, field(append([]byte{1<<3 | 2}, field(bytes.Repeat([]byte("a"), 2<<20))...))...))...)
			return some(c, 100, "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus", func(int) []byte { return m })
		}},
		{name: "checkers-fetched", what: "single reports of 50,000 endpoints without end", do: func(c *rawclient.Attacker) error {
			report := endpointReport()
			return again(func() error {
				id := c.Open("/envoy.service.health.v3.HealthDiscoveryService/FetchHealthCheck")
				if err := c.Message(id, report); err != nil {
					return err
				}
				c.Frame(http2.FrameData, http2.FlagDataEndStream, id, nil)
				return nil
			})
		}},
		{name: "localities", what: "1,000 streams, each of a locality of its own", do: func(c *rawclient.Attacker) error {
			i := 0
			return every(c, func() error {
				i++
				n := node()
				n.Locality = &corev3.Locality{Region: fmt.Sprintf("%p", c), Zone: fmt.Sprint(i)}
				m := &discoveryv3.DiscoveryRequest{Node: n, TypeUrl: endpointsURL, ResourceNames: []string{"checkout"}}
				return c.Data(c.Open(adsMethod), rawclient.Framed(encoded(m), false), largest)
			})
		}},
		{name: "checkers-endpoints", what: "100 checkers that report on 50,000 endpoints each", do: func(c *rawclient.Attacker) error {
			report := endpointReport()
			for i := range 100 {
				n := node()
				n.Id = fmt.Sprintf("checker-%p-%d", c, i)
				hello := rawclient.Framed(encoded(&healthv3.HealthCheckRequestOrEndpointHealthResponse{
					RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_HealthCheckRequest{
						HealthCheckRequest: &healthv3.HealthCheckRequest{Node: n, Capability: &healthv3.Capability{}},
					},
				}), false)
				if err := c.Message(c.Open(checkMethod), append(hello, report...)); err != nil {
					return err
				}
			}
			return nil
		}},
	}
}

// reportingGzip opens all streams with a load report each, compressed.
func reportingGzip(stats func() []*endpointv3.ClusterStats) func(c *rawclient.Attacker) error {
	return func(c *rawclient.Attacker) error {
		m := rawclient.Framed(compressed(encoded(&loadstatsv3.LoadStatsRequest{Node: node(), ClusterStats: stats()})), true)
		return every(c, func() error {
			return c.Message(c.Open(reportMethod, [2]string{"grpc-encoding", "gzip"}), m)
		})
	}
}

// withEndpoints is a report on one service, with many endpoints in many tiers of a locality.
func withEndpoints(tiers, endpoints int) []*endpointv3.ClusterStats {
	out := statsOf(1, 1, func(int) string { return "checkout" })
	first := out[0].GetUpstreamLocalityStats()[0]
	out[0].UpstreamLocalityStats = nil
	for i := range tiers {
		out[0].UpstreamLocalityStats = append(out[0].UpstreamLocalityStats, &endpointv3.UpstreamLocalityStats{
			Locality: first.GetLocality(), TotalIssuedRequests: 10, TotalSuccessfulRequests: 10,
			Priority: uint32(i), UpstreamEndpointStats: endpointStats(endpoints),
		})
	}
	return out
}

// endpointStats are of so many endpoints.
func endpointStats(n int) []*endpointv3.UpstreamEndpointStats {
	out := make([]*endpointv3.UpstreamEndpointStats, n)
	for i := range out {
		out[i] = &endpointv3.UpstreamEndpointStats{TotalIssuedRequests: 1, TotalSuccessfulRequests: 1, Address: socket(i)}
	}
	return out
}

// rejecting opens 100 streams whose every request rejects with much to say of it, and goes on
// as long as the server reads.
func rejecting(c *rawclient.Attacker) error {
	ask := encoded(&discoveryv3.DiscoveryRequest{Node: node(), TypeUrl: endpointsURL, ResourceNames: []string{"checkout"}})
	reason := append([]byte{2<<3 | 2}, field(bytes.Repeat([]byte("x"), large))...)
	m := rawclient.Framed(append(append(ask, 6<<3|2), field(reason)...), false)
	ids := make([]uint32, 100)
	for i := range ids {
		ids[i] = c.Open(adsMethod)
	}
	return again(func() error {
		for _, id := range ids {
			if err := c.Message(id, m); err != nil {
				return err
			}
		}
		return nil
	})
}

// endpointReport is a report of a checker on 50,000 endpoints, framed.
func endpointReport() []byte {
	told := make([]*healthv3.EndpointHealth, 50_000)
	for i := range told {
		told[i] = &healthv3.EndpointHealth{
			Endpoint:     &endpointv3.Endpoint{Address: socket(i)},
			HealthStatus: corev3.HealthStatus_UNHEALTHY,
		}
	}
	return rawclient.Framed(encoded(&healthv3.HealthCheckRequestOrEndpointHealthResponse{
		RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_EndpointHealthResponse{
			EndpointHealthResponse: &healthv3.EndpointHealthResponse{EndpointsHealth: told}, //nolint:staticcheck // what old checkers send
		},
	}), false)
}

// socket is one of many addresses.
func socket(i int) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
	}}}
}

// compressed is a message as gzip writes it.
func compressed(m []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(m)
	_ = w.Close()
	return b.Bytes()
}
