package checker

import (
	"fmt"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// state is what is being probed. It is immutable but for the statuses of its
// hosts; the loop publishes a new one with every specifier.
type state struct {
	interval time.Duration // between reports; 0 = none
	clusters []*cluster
	hosts    int
}

// cluster is a named set of hosts with their checks.
type cluster struct {
	name   string
	checks []*check
	groups []group
	hosts  map[string]*host // by locality and endpoint
}

type group struct {
	locality *corev3.Locality
	hosts    []*host
}

// host is an endpoint in a locality.
type host struct {
	address *corev3.Address
	target  Target
	status  atomic.Int32 // a corev3.HealthStatus; the loop writes, reports read
	tasks   []*task      // one for each check, in their order; owned by the loop
}

func (h *host) load() corev3.HealthStatus { return corev3.HealthStatus(h.status.Load()) }

// change collects what becomes of probes when a specifier is applied.
type change struct {
	added   []*task
	removed []*task
	refused []error // clusters and endpoints, for the log
	dropped int     // endpoints beyond the limit
}

// merge turns a specifier into the next state: hosts that stay keep their
// health, checks that stay their schedule, and a cluster that is refused stays
// as it was.
func merge(old *state, d *desired, maxHosts int) (*state, change) {
	known := make(map[string]*cluster, len(old.clusters))
	var gone []*cluster
	for _, c := range old.clusters {
		if c.name == "" {
			gone = append(gone, c) // rebuilt each time
		} else {
			known[c.name] = c
		}
	}
	next := &state{interval: d.interval}
	var ch change
	for i := range d.clusters {
		want := &d.clusters[i]
		was := known[want.name]
		for _, err := range want.skipped {
			ch.refused = append(ch.refused, fmt.Errorf("cluster %q: %w", short(want.name), err))
		}
		var c *cluster
		switch {
		case want.err != nil:
			ch.refused = append(ch.refused, fmt.Errorf("cluster %q: %w", short(want.name), want.err))
			if was == nil {
				continue
			}
			c = was
		case next.hosts+want.endpoints > maxHosts:
			ch.dropped += want.endpoints
			continue // with what was known of it
		default:
			c = ch.mergeCluster(was, want)
		}
		if next.hosts+len(c.hosts) > maxHosts {
			ch.dropped += len(c.hosts)
			continue
		}
		delete(known, want.name)
		next.clusters = append(next.clusters, c)
		next.hosts += len(c.hosts)
	}
	for _, c := range old.clusters {
		if c.name != "" && known[c.name] != nil {
			gone = append(gone, c)
		}
	}
	for _, c := range gone {
		for _, g := range c.groups {
			for _, h := range g.hosts {
				ch.removed = append(ch.removed, h.tasks...)
			}
		}
	}
	return next, ch
}

// mergeCluster makes the next form of a cluster; was may be nil.
func (ch *change) mergeCluster(was *cluster, want *desiredCluster) *cluster {
	if was == nil {
		was = &cluster{}
	}
	c := &cluster{name: want.name, checks: reuse(was.checks, want.checks), hosts: make(map[string]*host, want.endpoints)}
	for i := range want.groups {
		wg := &want.groups[i]
		if len(wg.endpoints) == 0 {
			continue // all disabled or refused: nothing to report on
		}
		g := group{locality: wg.locality, hosts: make([]*host, 0, len(wg.endpoints))}
		for j := range wg.endpoints {
			e := &wg.endpoints[j]
			h := was.hosts[e.key]
			fresh := h == nil
			if fresh {
				h = &host{address: e.address, target: e.target}
				h.status.Store(int32(corev3.HealthStatus_UNHEALTHY))
			}
			ch.assign(h, c.checks, fresh)
			c.hosts[e.key] = h
			g.hosts = append(g.hosts, h)
		}
		c.groups = append(c.groups, g)
	}
	for key, h := range was.hosts { // in any order: removal has none
		if c.hosts[key] == nil {
			ch.removed = append(ch.removed, h.tasks...)
		}
	}
	return c
}

// assign gives a host the tasks of the checks.
func (ch *change) assign(h *host, checks []*check, fresh bool) {
	tasks := make([]*task, 0, len(checks))
	for _, c := range checks {
		t := taken(h.tasks, c)
		if t == nil {
			t = &task{host: h, check: c, index: -1}
			if !fresh {
				t.verdict = inherited(h.load())
			}
			ch.added = append(ch.added, t)
		}
		tasks = append(tasks, t)
	}
	for _, t := range h.tasks {
		if taken(tasks, t.check) == nil {
			ch.removed = append(ch.removed, t)
		}
	}
	h.tasks = tasks
}

func taken(tasks []*task, c *check) *task {
	for _, t := range tasks {
		if t.check == c {
			return t
		}
	}
	return nil
}

// reuse keeps the checks that are there already.
func reuse(old, want []*check) []*check {
	out := make([]*check, len(want))
	for i, w := range want {
		out[i] = w
		for _, o := range old {
			if o.key == w.key {
				out[i] = o
			}
		}
	}
	return out
}

// verdict is what one check makes of one endpoint. The zero verdict is that
// of a new endpoint: unhealthy until its first probe passes.
type verdict struct {
	healthy  bool
	timedOut bool // unhealthy, and the last failure was a timeout
	checked  bool // a probe has ended
	passes   uint32
	failures uint32
	blind    uint32 // probes in a row that could not be made
	unknown  bool   // so many that the verdict has no ground
}

// record counts an outcome as Envoy does. changed tells that healthy flipped,
// pending that it would with more outcomes like this one.
func (v *verdict) record(o Outcome, c *check) (changed, pending bool) {
	if o == Blind {
		v.blind++
		v.unknown = v.unknown || v.blind >= c.unhealthyThreshold
		return false, false
	}
	first := !v.checked
	v.checked, v.blind, v.unknown = true, 0, false
	if o == Passed {
		v.failures = 0
		if v.healthy {
			return false, false
		}
		v.passes++
		if !first && v.passes < c.healthyThreshold {
			return false, true
		}
		v.healthy, v.timedOut, v.passes = true, false, 0
		return true, false
	}
	v.passes = 0
	if v.healthy {
		v.failures++
		if o != Failed && v.failures < c.unhealthyThreshold {
			return false, true
		}
		v.healthy, changed = false, true
	}
	v.failures = 0
	v.timedOut = o == TimedOut
	return changed, false
}

func (v *verdict) status() corev3.HealthStatus {
	switch {
	case v.unknown:
		return corev3.HealthStatus_UNKNOWN
	case v.healthy:
		return corev3.HealthStatus_HEALTHY
	case v.timedOut:
		return corev3.HealthStatus_TIMEOUT
	default:
		return corev3.HealthStatus_UNHEALTHY
	}
}

// inherited is the verdict of a new check on an endpoint whose status is known
// already: it keeps its health, and the first probe that passes counts. A
// status that is unknown because nothing was probed stays so until a probe.
func inherited(s corev3.HealthStatus) verdict {
	return verdict{
		healthy: s == corev3.HealthStatus_HEALTHY, timedOut: s == corev3.HealthStatus_TIMEOUT, unknown: s == corev3.HealthStatus_UNKNOWN,
	}
}

// gravity orders the statuses of checks: the gravest is the endpoint's.
var gravity = map[corev3.HealthStatus]int{
	corev3.HealthStatus_HEALTHY: 0, corev3.HealthStatus_UNKNOWN: 1, corev3.HealthStatus_TIMEOUT: 2, corev3.HealthStatus_UNHEALTHY: 3,
}

// combined is the status of an endpoint with several checks: healthy if all
// are, and unhealthy rather than timed out.
func combined(tasks []*task) corev3.HealthStatus {
	out := corev3.HealthStatus_HEALTHY
	for _, t := range tasks {
		if s := t.verdict.status(); gravity[s] > gravity[out] {
			out = s
		}
	}
	return out
}
