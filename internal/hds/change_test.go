package hds_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/hds/convert"
)

// collected lists the addresses that reports came of, with what they say.
func (h *harness) collected() string {
	var out []string
	for _, r := range h.srv.Collect(time.Now()) {
		out = append(out, r.Address+" "+r.Locality.String()+" "+r.Status.String())
	}
	return strings.Join(out, ", ")
}

// To a checker an endpoint is its locality, its address and how it is probed.
// One that changed in any of that begins again there, as down: what the checker
// said of it before, or was just about to say, is no vote on what it is now.
func TestChangedEndpointsStartAnew(t *testing.T) {
	for _, tc := range []struct {
		name  string
		alter func(*isobar.Service)
		flat  bool
		after string // locality of the endpoint that changed
	}{
		{"port of the probe", func(s *isobar.Service) {
			s.Localities[0].Endpoints[0].Check = &isobar.EndpointCheck{Port: 8081}
		}, false, "r/a"},
		{"port of the probe, reported flat", func(s *isobar.Service) {
			s.Localities[0].Endpoints[0].Check = &isobar.EndpointCheck{Port: 8081}
		}, true, "r/a"},
		{"locality", func(s *isobar.Service) {
			moved := s.Localities[0].Endpoints[0]
			s.Localities[0].Endpoints = s.Localities[0].Endpoints[1:]
			s.Localities[1].Endpoints = append(s.Localities[1].Endpoints, moved)
		}, false, "r/b"},
		{"locality, reported flat", func(s *isobar.Service) {
			moved := s.Localities[0].Endpoints[0]
			s.Localities[0].Endpoints = s.Localities[0].Endpoints[1:]
			s.Localities[1].Endpoints = append(s.Localities[1].Endpoints, moved)
		}, true, "r/b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, hds.Options{Interval: every(4 * time.Second)}, func(h *harness) {
				report := func(c *client, locality string) {
					m := grouped("cart", "r/a", endpoint("10.0.1.2:80", up))
					other := grouped("cart", locality, endpoint("10.0.1.1:80", up))
					m.ClusterEndpointsHealth = append(m.ClusterEndpointsHealth, other.GetClusterEndpointsHealth()...)
					if tc.flat {
						m = flat(endpoint("10.0.1.2:80", up), endpoint("10.0.1.1:80", up))
					}
					c.report(m)
				}
				c := h.enter("probe-1", "r/a")
				before := topology(service("cart", 1))
				h.srv.Designate(before, all(before, "probe-1"))
				c.recv()
				report(c, "r/a")
				if got, want := h.collected(), "10.0.1.1:80 r/a healthy, 10.0.1.2:80 r/a healthy"; got != want {
					t.Fatalf("at first %q, want %q", got, want)
				}
				pass(4 * time.Second)
				svc := service("cart", 1)
				tc.alter(&svc)
				after := topology(svc)
				said := c.next()
				report(c, "r/a") // before it is told, and collected after the change
				h.srv.Designate(after, all(after, "probe-1"))
				if got, want := h.collected(), "10.0.1.2:80 r/a healthy"; got != want {
					t.Errorf("not told yet: %q, want %q", got, want)
				}
				<-said
				h.signalled()
				report(c, "r/a") // was under way when it was told
				if got, want := h.collected(), "10.0.1.2:80 r/a healthy"; got != want || h.signalled() {
					t.Errorf("under way: %q, want %q", got, want)
				}
				pass(4 * time.Second)
				report(c, tc.after)
				if !h.signalled() {
					t.Error("the first word on it is no news")
				}
				want := []string{"10.0.1.1:80 " + tc.after + " healthy", "10.0.1.2:80 r/a healthy"}
				got := strings.Split(h.collected(), ", ")
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("at last %q, want %q", got, want)
				}
				c.leave()
			})
		})
	}
}

// With other TLS settings all endpoints of a service are new ones to a checker.
func TestChangedServerNameStartsAnew(t *testing.T) {
	inBubble(t, hds.Options{Interval: every(4 * time.Second)}, func(h *harness) {
		of := func(host string) *isobar.Topology {
			check := tcpCheck()
			check.Protocol, check.TCP, check.TLS = isobar.CheckHTTP, nil, true
			check.HTTP = &isobar.HTTPCheck{Path: "/", Host: host}
			return topology(service("cart", 1, check))
		}
		c := h.enter("probe-1", "r/a")
		before, after := of("one.example"), of("two.example")
		h.srv.Designate(before, all(before, "probe-1"))
		c.recv()
		c.report(grouped("cart", "r/a", endpoint("10.0.1.1:80", up)))
		if got, want := h.collected(), "10.0.1.1:80 r/a healthy"; got != want {
			t.Fatalf("at first %q, want %q", got, want)
		}
		pass(4 * time.Second)
		said := c.next()
		c.report(grouped("cart", "r/a", endpoint("10.0.1.1:80", down))) // before it is told, and collected after the change
		h.srv.Designate(after, all(after, "probe-1"))
		<-said
		c.report(grouped("cart", "r/a", endpoint("10.0.1.1:80", down))) // was under way when it was told
		if got := h.collected(); got != "" {
			t.Errorf("of what was before: %q", got)
		}
		pass(4 * time.Second)
		c.report(grouped("cart", "r/a", endpoint("10.0.1.1:80", up)))
		if got, want := h.collected(), "10.0.1.1:80 r/a healthy"; got != want {
			t.Errorf("at last %q, want %q", got, want)
		}
		c.leave()
	})
}

// A second request on a stream changes what the checker can probe, in both directions; who it is
// stays as its first one said.
func TestCapabilitiesChange(t *testing.T) {
	inBubble(t, hds.Options{Interval: every(2 * time.Second)}, func(h *harness) {
		c := h.enter("probe-1", "r/a", healthv3.Capability_TCP)
		web := tcpCheck()
		web.Protocol, web.TCP, web.HTTP = isobar.CheckHTTP, nil, &isobar.HTTPCheck{Path: "/healthz"}
		top := topology(service("cart", 1), service("web", 2, web))
		h.srv.Designate(top, all(top, "probe-1"))
		if got := clusters(c.recv()); !maps.Equal(got, map[string]int{"cart": 3}) {
			t.Fatalf("told %v", got)
		}
		h.signalled()
		again := hello("another-name", "r/b", healthv3.Capability_HTTP)
		node := again.GetHealthCheckRequest().GetNode()
		node.ClientFeatures = []string{convert.FeatureGRPCChecks}
		node.Metadata = metadataOf(t, map[string]any{"isobar": map[string]any{"max_endpoints": 7}})
		c.send(again)
		if got := clusters(c.recv()); !maps.Equal(got, map[string]int{"cart": 0, "web": 3}) {
			t.Errorf("told %v", got)
		}
		if !h.signalled() {
			t.Error("nobody is told that the checker can do something else")
		}
		got := h.srv.Checkers(time.Now())[0]
		if got.ID != "probe-1" || got.Locality != isobar.MustLocality("r/a") || got.Protocols.String() != "http+grpc" || got.MaxEndpoints != 7 {
			t.Errorf("checker %+v", got)
		}
		// The same again, and what says nothing of itself, is no news.
		c.send(again)
		c.send(&request{RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_HealthCheckRequest{HealthCheckRequest: &healthv3.HealthCheckRequest{}}})
		if h.signalled() {
			t.Error("a request that changes nothing is news")
		}
		if got := h.srv.Checkers(time.Now())[0].Protocols.String(); got != "http+grpc" {
			t.Errorf("protocols %s", got)
		}
		// Builds before the end of 2018 send a request without the message around it.
		bare := &healthv3.HealthCheckRequest{
			Node: node, Capability: &healthv3.Capability{HealthCheckProtocols: []healthv3.Capability_Protocol{healthv3.Capability_REDIS}},
		}
		if err := c.stream.SendMsg(bare); err != nil {
			t.Fatal(err)
		}
		if !h.signalled() || h.srv.Checkers(time.Now())[0].Protocols.String() != "grpc+redis" {
			t.Errorf("after a bare request: %+v", h.srv.Checkers(time.Now()))
		}
		node.Metadata = metadataOf(t, map[string]any{"isobar": map[string]any{"max_endpoints": -1}})
		c.send(again)
		var err error
		for err == nil { // what it was told meanwhile
			_, err = c.stream.Recv()
		}
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("ended with %v", err)
		}
		c.leave()
	})
}

// A checker that polls says with each request what it can probe, and how much.
func TestCapabilitiesOfPollersChange(t *testing.T) {
	inBubble(t, hds.Options{Interval: every(2 * time.Second)}, func(h *harness) {
		poll := func(protocol healthv3.Capability_Protocol, most float64) {
			m := hello("poller", "r/a", protocol)
			m.GetHealthCheckRequest().Node.Metadata = metadataOf(t, map[string]any{"isobar": map[string]any{"max_endpoints": most}})
			if _, err := healthv3.NewHealthDiscoveryServiceClient(h.conn).FetchHealthCheck(h.t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		poll(healthv3.Capability_TCP, 10)
		h.signalled()
		poll(healthv3.Capability_TCP, 20)
		if got := h.srv.Checkers(time.Now())[0]; !h.signalled() || got.MaxEndpoints != 20 {
			t.Errorf("another bound: %+v", got)
		}
		poll(healthv3.Capability_HTTP, 20)
		if got := h.srv.Checkers(time.Now())[0]; !h.signalled() || got.Protocols.String() != "http" {
			t.Errorf("another protocol: %+v", got)
		}
	})
}

// An Envoy that says nothing of how many endpoints it can bear is given what the
// options say; what it says itself counts more.
func TestEnvoysThatSayNoBound(t *testing.T) {
	inBubble(t, hds.Options{Interval: every(2 * time.Second), EnvoyEndpoints: 40}, func(h *harness) {
		poll := func(metadata map[string]any) int {
			m := hello("envoy", "r/a", healthv3.Capability_TCP)
			node := m.GetHealthCheckRequest().Node
			node.UserAgentName = "envoy"
			if metadata != nil {
				node.Metadata = metadataOf(t, map[string]any{"isobar": metadata})
			}
			if _, err := healthv3.NewHealthDiscoveryServiceClient(h.conn).FetchHealthCheck(h.t.Context(), m); err != nil {
				t.Fatal(err)
			}
			return h.srv.Checkers(time.Now())[0].MaxEndpoints
		}
		if got := poll(nil); got != 40 {
			t.Errorf("%d endpoints, want 40", got)
		}
		if got := poll(map[string]any{"max_endpoints": 3000}); got != 3000 {
			t.Errorf("%d endpoints, want 3000", got)
		}
		if got := poll(nil); got != 40 {
			t.Errorf("%d endpoints once it says nothing again, want 40", got)
		}
	})
}
