package fleet

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
)

// idleCheck is how often a fake Envoy looks around when it has nothing to do.
const idleCheck = time.Hour

// nextEvent returns how long nothing happens.
func (e *EnvoyChecker) nextEvent(now time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := now.Add(idleCheck)
	if !e.reportAt.IsZero() && e.reportAt.Before(at) {
		at = e.reportAt
	}
	for _, c := range e.clusters {
		for _, h := range c.hosts {
			for i := range h.sessions {
				if t := h.sessions[i].due(); t.Before(at) {
					at = t
				}
			}
		}
	}
	return max(0, at.Sub(now))
}

// due is when something happens to a session.
func (s *probeSession) due() time.Time {
	if s.running {
		return s.ends
	}
	return s.next
}

// probe ends and begins the probes that are due.
func (e *EnvoyChecker) probe(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.clusters {
		for _, h := range c.hosts {
			for i := range h.sessions {
				if h.sessions[i].due().After(now) {
					continue
				}
				if !h.sessions[i].running {
					e.stats.Probes++
				}
				h.step(i, &c.checks[i], now, func() ProbeOutcome { return e.opts.Probe(c.name, h.address, now) })
			}
		}
	}
}

// step takes session i on: a probe begins, and ends at once unless it hangs.
func (h *probedHost) step(i int, c *probeCheck, now time.Time, probe func() ProbeOutcome) {
	s := &h.sessions[i]
	if !s.running {
		s.outcome = probe()
		s.running, s.ends = true, now
		if s.outcome == ProbeHangs {
			s.ends = now.Add(c.timeout)
			return
		}
	}
	s.running, s.next = false, now.Add(c.interval)
	if s.outcome == ProbePasses {
		h.pass(s, c)
	} else {
		h.miss(s, c)
	}
}

// pass books a success: the first one of all flips a host.
func (h *probedHost) pass(s *probeSession, c *probeCheck) {
	s.missed = 0
	if h.failed {
		s.passed++
		if s.first || s.passed >= c.healthy {
			h.failed = false
			s.passed = 0
		}
	}
	h.timedOut, s.first = false, false
}

// miss books a failure: an answer that says no flips a host at once, the
// network's failures when there are enough of them.
func (h *probedHost) miss(s *probeSession, c *probeCheck) {
	s.passed = 0
	if !h.failed {
		s.missed++
		if s.outcome == ProbeRejects || s.missed >= c.unhealthy {
			h.failed = true
			s.missed = 0
		}
	}
	h.timedOut, s.first = s.outcome == ProbeHangs, false
}

// report makes the report that is due, if one is. The caller sends it.
func (e *EnvoyChecker) report(now time.Time) (*healthv3.HealthCheckRequestOrEndpointHealthResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reportAt.IsZero() || now.Before(e.reportAt) {
		return nil, nil //nolint:nilnil // nothing is due
	}
	e.reportAt = now.Add(e.interval)
	e.stats.Reports++
	if len(e.clusters) == 0 { // it goes on, and says nothing
		e.stats.Empty++
		return &healthv3.HealthCheckRequestOrEndpointHealthResponse{}, nil
	}
	var out healthv3.EndpointHealthResponse
	var all []*healthv3.EndpointHealth
	for _, c := range e.clusters {
		cluster := &healthv3.ClusterEndpointsHealth{ClusterName: c.name}
		for _, l := range c.localities {
			if len(l.hosts) == 0 {
				return nil, crash("cluster %s has a locality without endpoints: element 0 is read", c.name)
			}
			locality := &healthv3.LocalityEndpointsHealth{Locality: l.locality}
			for _, h := range l.hosts {
				locality.EndpointsHealth = append(locality.EndpointsHealth, h.state())
			}
			all = append(all, locality.GetEndpointsHealth()...)
			cluster.LocalityEndpointsHealth = append(cluster.LocalityEndpointsHealth, locality)
		}
		out.ClusterEndpointsHealth = append(out.ClusterEndpointsHealth, cluster)
	}
	out.EndpointsHealth = all //nolint:staticcheck // deprecated, and sent by all builds
	if e.opts.Build >= Envoy2019 {
		out.ClusterEndpointsHealth = nil
	}
	return &healthv3.HealthCheckRequestOrEndpointHealthResponse{
		RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_EndpointHealthResponse{EndpointHealthResponse: &out},
	}, nil
}

// state is a host as it is reported.
func (h *probedHost) state() *healthv3.EndpointHealth {
	s := corev3.HealthStatus_HEALTHY
	switch {
	case h.failed && h.timedOut:
		s = corev3.HealthStatus_TIMEOUT
	case h.failed:
		s = corev3.HealthStatus_UNHEALTHY
	}
	return &healthv3.EndpointHealth{Endpoint: h.endpoint, HealthStatus: s}
}
