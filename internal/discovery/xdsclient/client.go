package xdsclient

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/keep"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// Client follows another control plane. Open, then Configure, then Run.
type Client struct {
	opts    Options
	metrics *metrics
	limit   rpc.LogLimit // of what the server can trigger

	changed chan struct{} // the configuration has changed; room for one signal
	saver   *keep.Saver

	outdated atomic.Pointer[[]keep.Outdated] // as the table said last; nil before Configure

	mu     sync.Mutex // guards all below
	cfg    *Config    // nil = there is no other control plane
	table  table
	link   link
	answer chan struct{} // closed when every service is known, or was answered for
}

// link is the state of the stream, for operators.
type link struct {
	connected  bool
	since      time.Time // of connected, or of its loss
	lastUpdate time.Time // when a response was taken last
	failure    string    // why the last stream ended
	acks       uint64
	nacks      uint64
	lastNACK   string
	lastNACKAt time.Time
}

// Open loads what was listed last. Nothing is asked and nothing handed over
// before [Client.Configure] and [Client.Run].
func Open(ctx context.Context, o Options) (*Client, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	c := &Client{
		opts: o, changed: make(chan struct{}, 1),
		answer: make(chan struct{}), link: link{since: time.Now()},
	}
	c.saver = keep.NewSaver(o.Store, storeKey, keep.SaverOptions{Encode: c.encode, Log: o.Log, Source: "xds"})
	if err := c.load(ctx); err != nil {
		return nil, err
	}
	c.metrics = newMetrics(o.Registerer)
	return c, nil
}

// Configure changes what is asked of whom; nil = nothing any more. It hands
// all services of which endpoints are known to put, and the others, with the lock
// held that keeps others from coming between. An error of put refuses the
// configuration.
//
// A service whose endpoints came from the file or from another provider until
// now begins with those: it is not empty until the first answer.
func (c *Client) Configure(cfg *Config, put func(listed, unknown []isobar.Service) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.table.configured(cfg, c.seed, time.Now())
	if err := put(next.services(), next.unknown()); err != nil {
		return err
	}
	c.cfg, c.table = cfg, next
	c.show()
	keep.Signal(c.changed)
	c.saver.Changed()
	return nil
}

// Preview returns what [Client.Configure] would hand over, and the services of
// which no endpoints are known, so that they would have none until the server
// lists some. Nothing changes.
func (c *Client) Preview(cfg *Config) (listed, unknown []isobar.Service) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.table.configured(cfg, c.seed, time.Now())
	return next.services(), next.unknown()
}

// seed returns the endpoints that the file or another provider lists for a service
// that is about to move here.
func (c *Client) seed(name string) []isobar.ServiceLocality {
	return keep.Seed(c.opts.Registry.Get, name)
}

// WaitAnswered waits until the server has answered for every service of which
// nothing was known at the start, at most for patience. Without it, clients
// that come early would find their services missing.
func (c *Client) WaitAnswered(ctx context.Context, patience time.Duration) {
	c.mu.Lock()
	ready := c.table.answered()
	c.mu.Unlock()
	if ready {
		return
	}
	keep.Await(ctx, c.answer, patience, func() {
		c.opts.Log.Warn("the other control plane has not sent all services yet; serving the missing ones without endpoints", "waited", patience)
	})
}

// Complete reports whether the server has answered for every service, or no server is
// configured.
func (c *Client) Complete() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(c.table.entries, func(e *entry) bool { return !e.answered })
}

// config returns the configuration in force; nil for none.
func (c *Client) config() *Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg
}

// show brings metrics, and who waits, up to what the table says. c.mu is held.
func (c *Client) show() {
	c.table.noteUnconfirmed(time.Now())
	list := c.table.outdated()
	c.outdated.Store(&list)
	c.metrics.services(&c.table)
	if c.table.answered() {
		select {
		case <-c.answer:
		default:
			close(c.answer)
		}
	}
}

// load fills the table with what was saved; it is configured later.
func (c *Client) load(ctx context.Context) error {
	data, err := c.saver.Load(ctx)
	if err != nil {
		return fmt.Errorf("loading the saved services of discovery.xds: %w", err)
	}
	if data == nil {
		return nil
	}
	return c.table.restore(data)
}

// encode returns what is to be saved.
func (c *Client) encode() (data []byte, empty bool, err error) {
	c.mu.Lock()
	now := c.table.snapshot()
	c.mu.Unlock()
	data, err = now.encode()
	return data, len(now.Services) == 0, err
}
