package xdsource

import (
	"context"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
)

// Bounds of the wait before a stream is opened again.
const (
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
)

// Run follows the server until ctx ends, saves what is known and returns nil.
func (c *Client) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		c.follow(ctx)
		return nil
	})
	g.Go(func() error {
		c.save(ctx)
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
		timer := time.NewTimer(backoff(failures))
		select {
		case <-ctx.Done():
		case <-c.changed: // perhaps to a server that can be reached
		case <-timer.C:
		}
		timer.Stop()
	}
}

// backoff is how long to wait after so many failures in a row: at random
// between a second and twice as long as before, up to maxBackoff, so that many
// do not come back at once.
func backoff(failures int) time.Duration {
	most := maxBackoff
	if failures < 5 { // 2^5 s are more
		most = minBackoff << failures
	}
	return minBackoff + rand.N(most-minBackoff+1) //nolint:gosec // jitter is no secret
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
	text := short(err.Error())
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

// short bounds what is quoted from others.
func short(s string) string {
	const most = 500
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
