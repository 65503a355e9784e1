package member

import (
	"context"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/xds"
)

const (
	// awaitLook and awaitLookMost are between two looks whether a version has come: at
	// first, and after many.
	awaitLook, awaitLookMost = 10 * time.Millisecond, 250 * time.Millisecond
	// publishPatience bounds how long a plan that this replica has may take to reach
	// the streams.
	publishPatience = 5 * time.Second
	// removalsLook is how often a replica looks whether clients may be told that
	// something is absent.
	removalsLook = 100 * time.Millisecond
	// refusalTimes is for how many times as long as a leader waits for reports clients are
	// refused that come back to a group that lost its plans.
	refusalTimes = 2
)

// groupClients decides what clients get that come from other replicas, or go to them.
type groupClients struct {
	interval    func() time.Duration // of reports
	self        *self
	xds         *xds.Server
	loop        *control.Loop // set before clients come
	connections connections
	metrics     metrics
	refusing    atomic.Pointer[time.Time] // since when clients that return are refused; nil = they are not
}

// await returns when this replica serves the version that a client shows, or does not
// know of it. If the version does not come, it closes the client's connection: a
// stream that only ends is opened again on the same one.
func (c *groupClients) await(ctx context.Context, peer, version string) error {
	shown, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return nil // another control plane sent it
	}
	refuses := func() error {
		if !group.Claimable(shown) || c.loop.Current() == nil {
			return nil
		}
		return c.returns()
	}
	if err := refuses(); err != nil {
		return err
	}
	began := time.Now()
	look := time.NewTimer(0)
	defer look.Stop()
	for pause := awaitLook; ; pause = min(2*pause, awaitLookMost) {
		if c.serves(shown) {
			return refuses() // the first plan that came may be a provisional one
		}
		waited := time.Since(began)
		switch c.self.Admit(shown, waited) {
		case group.Serve:
			if p, _ := c.self.Served(); p.Version < shown || waited >= publishPatience {
				return refuses() // it belongs to no claim, or the streams are stuck anyway
			}
		case group.Wait:
		case group.Close:
			c.metrics.closed.Inc()
			c.connections.end(peer)
			return status.Errorf(codes.Unavailable, "isobar: this replica lacks version %s and did not get it within %s; another one has it",
				version, waited.Round(time.Second))
		}
		look.Reset(pause)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.loop.Left():
			return status.Error(codes.Unavailable, "isobar: the server is stopping")
		case <-look.C:
		}
	}
}

// returns refuses a client that has an answer of an earlier plan while the plan here was
// made after all plans were lost: it would move all clients at once. Only the stream ends,
// so that the client can report load on the same connection. Where no leader ends that, as
// when the election engine is out of reach, this replica refuses clients for so long only.
func (c *groupClients) returns() error {
	if c.loop.Current() == nil { // what the first one will be, nobody knows
		return status.Error(codes.Unavailable, "isobar: this replica has no plan yet")
	}
	if !c.loop.Provisional() {
		c.refusing.Store(nil)
		return nil
	}
	now := time.Now()
	c.refusing.CompareAndSwap(nil, &now)
	if began := c.refusing.Load(); began == nil || time.Since(*began) < refusalTimes*control.GatherMost(c.interval()) {
		c.metrics.refused.Inc()
		return status.Error(codes.Unavailable, "isobar: the group has lost all its plans, and waits until most clients have reported load; keep what you have")
	}
	return nil
}

// serves reports whether streams get a version, or a newer one.
func (c *groupClients) serves(version uint64) bool {
	published, err := strconv.ParseUint(c.xds.Version(), 10, 64)
	return err == nil && published >= version
}

// watchRemovals permits removals to clients whenever this replica is up to date with its leader,
// until ctx ends.
func (c *groupClients) watchRemovals(ctx context.Context) {
	look := time.NewTicker(removalsLook)
	defer look.Stop()
	for {
		served, ok := c.self.Served()
		c.xds.HoldRemovals(!ok || !c.self.Removes() || !c.serves(served.Version))
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// connections are the open connections of clients, by the address of the client.
type connections struct {
	mu   sync.Mutex
	open map[string]net.Conn
}

// Add implements [listen.Tracker].
func (c *connections) Add(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[conn.RemoteAddr().String()] = conn
}

// Remove implements [listen.Tracker].
func (c *connections) Remove(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if address := conn.RemoteAddr().String(); c.open[address] == conn {
		delete(c.open, address)
	}
}

func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// end closes the connection of a client.
func (c *connections) end(address string) {
	c.mu.Lock()
	conn := c.open[address]
	c.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // the client may have closed it
	}
}

// metrics count what a group does to clients.
type metrics struct{ closed, balanced, refused prometheus.Counter }

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{closed: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "isobar_replica_connections_closed_total",
		Help: "Connections of clients closed because this replica did not get the version that the client already had.",
	}), balanced: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "isobar_replica_connections_balanced_total",
		Help: "Connections of clients closed because this replica had clearly more of them than the others.",
	}), refused: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "isobar_replica_streams_refused_total",
		Help: "Streams of clients refused because the group has lost all its plans, and waits until clients have reported load.",
	})}
	r.MustRegister(m.closed, m.balanced, m.refused)
	return m
}
