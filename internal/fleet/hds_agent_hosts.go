package fleet

import (
	"bytes"
	"net/netip"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Envoy's defaults of what a message leaves out.
const (
	envoyReportInterval    = time.Second
	envoyNoTrafficInterval = time.Minute
)

// probedCluster is one cluster of a specifier.
type probedCluster struct {
	name       string
	localities []probedLocality
	hosts      map[string]*probedHost // by locality and endpoint
	checks     []probeCheck
}

// probedLocality lists the hosts of a LocalityEndpoints; it may have none.
type probedLocality struct {
	locality *corev3.Locality
	hosts    []*probedHost
}

// probeCheck is what matters of a health check.
type probeCheck struct {
	interval, timeout  time.Duration
	unhealthy, healthy uint32
	content            []byte
}

// probedHost is an endpoint with its health flags, which all checks share.
type probedHost struct {
	endpoint *endpointv3.Endpoint
	address  string
	failed   bool
	timedOut bool
	sessions []probeSession // one a check
}

// probeSession is one check of one host.
type probeSession struct {
	first          bool
	passed, missed uint32
	next           time.Time // when the next probe begins
	running        bool
	ends           time.Time
	outcome        ProbeOutcome
}

var deterministic = proto.MarshalOptions{Deterministic: true}

// apply takes a specifier: the full desired state.
func (e *EnvoyChecker) apply(m *healthv3.HealthCheckSpecifier, now time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Specifiers++
	fresh := !e.received
	e.received = true
	data, err := deterministic.Marshal(m)
	if err != nil {
		return err
	}
	if e.last != nil && bytes.Equal(data, e.last) {
		e.stats.Ignored++
		if fresh && e.opts.Build == EnvoyNow {
			e.armReport(now)
		}
		return nil // older builds don't even begin to report on a new stream
	}
	e.last = data
	if m.GetInterval() == nil && e.opts.Build >= Envoy2019 {
		return crash("no interval")
	}
	e.interval = durationOr(m.GetInterval(), envoyReportInterval)
	if err := e.diff(m.GetClusterHealthChecks(), now); err != nil {
		return err
	}
	if e.interval > 0 {
		e.armReport(now)
	}
	return nil
}

func (e *EnvoyChecker) armReport(now time.Time) {
	if e.interval > 0 {
		e.reportAt = now.Add(e.interval)
	}
}

// diff keeps what is known of clusters and hosts that stay. The caller holds
// the lock.
func (e *EnvoyChecker) diff(list []*healthv3.ClusterHealthCheck, now time.Time) error {
	known := map[string]*probedCluster{}
	for _, c := range e.clusters {
		if c.name != "" && e.opts.Build < Envoy2019 {
			known[c.name] = c
		}
	}
	var next []*probedCluster
	named := map[string]bool{}
	for _, m := range list {
		if m.GetClusterName() != "" && named[m.GetClusterName()] {
			continue
		}
		named[m.GetClusterName()] = true
		c, err := newProbedCluster(m, known[m.GetClusterName()], now)
		if err != nil {
			return err
		}
		next = append(next, c)
	}
	for _, c := range e.clusters {
		if named[c.name] {
			continue
		}
		if len(c.hosts) > 0 {
			e.stats.Abrupt++
		}
		if c.probing() {
			return crash("cluster %s is dropped while its probes are running", c.name)
		}
	}
	e.clusters = next
	return nil
}

func (c *probedCluster) probing() bool {
	for _, h := range c.hosts {
		for i := range h.sessions {
			if h.sessions[i].running {
				return true
			}
		}
	}
	return false
}

func newProbedCluster(m *healthv3.ClusterHealthCheck, before *probedCluster, now time.Time) (*probedCluster, error) {
	c := &probedCluster{name: m.GetClusterName(), hosts: map[string]*probedHost{}}
	for _, h := range m.GetHealthChecks() {
		check, err := newProbeCheck(h)
		if err != nil {
			return nil, err
		}
		c.checks = append(c.checks, check)
	}
	for _, l := range m.GetLocalityEndpoints() {
		pl := probedLocality{locality: l.GetLocality()}
		for _, ep := range l.GetEndpoints() {
			if ep.GetHealthCheckConfig().GetDisableActiveHealthCheck() {
				continue
			}
			key, h, err := newProbedHost(l.GetLocality(), ep)
			if err != nil {
				return nil, err
			}
			if before != nil && before.hosts[key] != nil {
				h.failed, h.timedOut = before.hosts[key].failed, before.hosts[key].timedOut
				h.sessions = before.hosts[key].sessions
			}
			h.begin(c.checks, before, now)
			c.hosts[key] = h
			pl.hosts = append(pl.hosts, h)
		}
		c.localities = append(c.localities, pl)
	}
	return c, nil
}

// newProbedHost makes a host; hosts start as failed.
func newProbedHost(l *corev3.Locality, ep *endpointv3.Endpoint) (string, *probedHost, error) {
	s := ep.GetAddress().GetSocketAddress()
	if _, err := netip.ParseAddr(s.GetAddress()); err != nil {
		return "", nil, crash("address %q is not an IP", s.GetAddress())
	}
	seen := &endpointv3.Endpoint{Address: ep.GetAddress(), HealthCheckConfig: ep.GetHealthCheckConfig()} // the rest is not read
	a, errA := deterministic.Marshal(l)
	b, errB := deterministic.Marshal(seen)
	if errA != nil || errB != nil {
		return "", nil, crash("%v, %v", errA, errB)
	}
	return string(a) + "\x00" + string(b), &probedHost{endpoint: seen, address: joinPort(s.GetAddress(), s.GetPortValue()), failed: true}, nil
}

// begin starts the checks of a host; one that is byte for byte what it was goes
// on where it is.
func (h *probedHost) begin(checks []probeCheck, before *probedCluster, now time.Time) {
	old := h.sessions
	h.sessions = make([]probeSession, len(checks))
	for i := range checks {
		h.sessions[i] = probeSession{first: true, next: now}
		if before != nil && i < len(old) && i < len(before.checks) && bytes.Equal(before.checks[i].content, checks[i].content) {
			h.sessions[i] = old[i]
		}
	}
}

func newProbeCheck(h *corev3.HealthCheck) (probeCheck, error) {
	switch h.GetHealthChecker().(type) {
	case *corev3.HealthCheck_HttpHealthCheck_, *corev3.HealthCheck_TcpHealthCheck_, *corev3.HealthCheck_CustomHealthCheck_:
	case *corev3.HealthCheck_GrpcHealthCheck_:
		return probeCheck{}, crash("a gRPC check needs a cluster with HTTP/2, which this one can't have")
	default:
		return probeCheck{}, crash("a health check without a checker")
	}
	if h.GetUnhealthyThreshold() == nil || h.GetHealthyThreshold() == nil {
		return probeCheck{}, crash("a health check without thresholds")
	}
	content, err := deterministic.Marshal(h)
	if err != nil {
		return probeCheck{}, crash("%v", err)
	}
	c := probeCheck{
		// Clusters of health discovery carry no traffic.
		interval:  durationOr(h.GetNoTrafficInterval(), envoyNoTrafficInterval),
		timeout:   h.GetTimeout().AsDuration(),
		unhealthy: h.GetUnhealthyThreshold().GetValue(), healthy: h.GetHealthyThreshold().GetValue(),
		content: content,
	}
	if c.timeout <= 0 || h.GetInterval().AsDuration() <= 0 || c.interval <= 0 {
		return probeCheck{}, crash("a health check without timeout or interval")
	}
	return c, nil
}

func durationOr(d *durationpb.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.AsDuration()
}
