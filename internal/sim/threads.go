package sim

import "github.com/isobar-xds/isobar/dataplane"

// mergeWindow is update_merge_window of Envoy's common_lb_config, seconds. It has its default in
// the clusters that Isobar serves, and in those of the duel.
const mergeWindow = 1

// workerThreads is what the workers of a proxy know of its endpoints. The main thread knows of
// ejections at once; the workers, which choose the endpoints of requests, may learn of them later.
//
// Source: Envoy, cluster_manager_impl.cc, scheduleUpdate and applyUpdates: an update of hosts
// that adds and removes none, such as other health or other weights, reaches the workers at once
// if the last one did more than update_merge_window ago. If not, the main thread waits for as
// long as the window, and then sends all updates that came meanwhile as one. Each change of a
// host's health is an update (upstream_impl.cc, reloadHealthyHostsHelper).
type workerThreads struct {
	left    []bool  // per endpoint: ejected, as far as they know
	updated float64 // seconds, of the last update
	due     float64 // seconds, of the merged update; 0 = none is pending
}

func newWorkerThreads(endpoints int) workerThreads {
	return workerThreads{left: make([]bool, endpoints), updated: -2 * mergeWindow}
}

// update lets the workers of a client know of a change, at a moment in seconds. keeps says
// that it adds and removes no endpoint.
func (r *requests) update(c *client, at float64, keeps bool) {
	x := &c.threads
	if c.kind != dataplane.Envoy || !keeps || at-x.updated > mergeWindow {
		r.inform(c, at)
		return
	}
	if x.due == 0 {
		x.due = at + mergeWindow
		r.events.add(event{at: x.due, update: c})
	}
}

// merged ends a window that began with an update, unless another update has ended it since.
func (r *requests) merged(c *client, at float64) {
	if c.threads.due == at {
		r.inform(c, at)
	}
}

// inform lets the workers of a client know all that its main thread does.
func (r *requests) inform(c *client, at float64) {
	c.threads.updated, c.threads.due = at, 0
	for e := range c.ejections {
		c.threads.left[e] = c.ejections[e].out
	}
	r.w.ejecting.reroute(c)
}

// listed reports whether the workers of a client may send to an endpoint, as far as they know.
func (c *client) listed(e int) bool {
	return (c.ejections == nil || !c.threads.left[e]) && c.knowsUp(e)
}

// ejects reports whether the workers of the client have left any endpoint.
func (c *client) ejects() bool {
	for _, left := range c.threads.left {
		if left {
			return true
		}
	}
	return false
}
