package xdsclient

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isobar-xds/isobar/internal/discovery/keep"
)

// Run follows the server until ctx ends, saves what is known and returns nil.
func (c *Client) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		c.follow(ctx)
		return nil
	})
	g.Go(func() error {
		c.saver.Run(ctx, c.metrics.saveErrors)
		return nil
	})
	return g.Wait()
}

// follow keeps a stream open.
func (c *Client) follow(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		select {
		case <-c.changed: // seen by what follows
		default:
		}
		cfg := c.config()
		if cfg == nil {
			select {
			case <-ctx.Done():
			case <-c.changed:
			}
			continue
		}
		answered, err := c.talk(ctx, cfg)
		c.ended(ctx, cfg, err)
		if answered {
			failures = 0
		}
		if err == nil { // what is asked of whom has changed
			continue
		}
		failures++
		timer := time.NewTimer(keep.Backoff(failures))
		select {
		case <-ctx.Done():
		case <-c.changed: // perhaps to a server that can be reached
		case <-timer.C:
		}
		timer.Stop()
	}
}

// ended notes that a stream has ended; a nil error says that we ended it.
func (c *Client) ended(ctx context.Context, cfg *Config, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link.connected {
		c.link.connected, c.link.since = false, time.Now()
	}
	c.metrics.connected.Set(0)
	c.table.forget()
	c.show()
	if err == nil || ctx.Err() != nil {
		return
	}
	text := keep.Short(err.Error())
	if text == c.link.failure {
		return // told before
	}
	c.link.failure = text
	c.warn("no endpoints from the other control plane; what it listed last stays", "server", cfg.Server, "error", text)
}

// warn logs what the server can trigger, at a bounded rate.
func (c *Client) warn(msg string, attrs ...any) {
	skipped, ok := c.limit.Allow(time.Now())
	if !ok {
		return
	}
	if skipped > 0 {
		attrs = append(attrs, "lines_skipped", skipped)
	}
	c.opts.Log.Warn(msg, attrs...) //nolint:sloglint // the callers' are literals
}
