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
