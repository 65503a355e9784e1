package checker

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
)

// upstream is what a checker sends: a request, then reports.
type upstream = healthv3.HealthCheckRequestOrEndpointHealthResponse

// reporter makes reports. It keeps the message between them: the shape changes
// with specifiers only, and the statuses are few bytes.
type reporter struct {
	built   *state
	message *upstream
	entries []entry
}

// entry is a host and the place of its status in the message.
type entry struct {
	host   *host
	health *healthv3.EndpointHealth
}

// report gives the message for a state as it is now, valid until the next
// call. Each endpoint stands in it twice: under its cluster and locality, and
// in the flat list that older servers read. Endpoints that this machine can't
// probe are left out: to servers a missing entry is no verdict.
func (r *reporter) report(s *state) *upstream {
	unknown := 0
	if r.built == s {
		for i := range r.entries {
			e := &r.entries[i]
			status := e.host.load()
			e.health.HealthStatus = status
			if status == corev3.HealthStatus_UNKNOWN {
				unknown++
			}
		}
	}
	if r.built != s || unknown > 0 || len(r.entries) < s.hosts {
		r.build(s)
	}
	return r.message
}

func (r *reporter) build(s *state) {
	resp := &healthv3.EndpointHealthResponse{
		EndpointsHealth:        make([]*healthv3.EndpointHealth, 0, s.hosts), //nolint:staticcheck // older servers read it
		ClusterEndpointsHealth: make([]*healthv3.ClusterEndpointsHealth, 0, len(s.clusters)),
	}
	r.built = s
	r.entries = make([]entry, 0, s.hosts)
	for _, c := range s.clusters {
		ceh := &healthv3.ClusterEndpointsHealth{ClusterName: c.name}
		for _, g := range c.groups {
			leh := &healthv3.LocalityEndpointsHealth{
				Locality:        g.locality,
				EndpointsHealth: make([]*healthv3.EndpointHealth, 0, len(g.hosts)),
			}
			for _, h := range g.hosts {
				status := h.load()
				if status == corev3.HealthStatus_UNKNOWN {
					continue
				}
				eh := &healthv3.EndpointHealth{Endpoint: &endpointv3.Endpoint{Address: h.address}, HealthStatus: status}
				r.entries = append(r.entries, entry{host: h, health: eh})
				leh.EndpointsHealth = append(leh.EndpointsHealth, eh)
				resp.EndpointsHealth = append(resp.EndpointsHealth, eh) //nolint:staticcheck // older servers read it
			}
			if len(leh.GetEndpointsHealth()) > 0 {
				ceh.LocalityEndpointsHealth = append(ceh.LocalityEndpointsHealth, leh)
			}
		}
		resp.ClusterEndpointsHealth = append(resp.ClusterEndpointsHealth, ceh)
	}
	r.message = &upstream{RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_EndpointHealthResponse{EndpointHealthResponse: resp}}
}

// statusName is a status as logs and metrics write it.
func statusName(s corev3.HealthStatus) string { return strings.ToLower(s.String()) }
