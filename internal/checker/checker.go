package checker

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
)

// UserAgent is how checkers name themselves in their node.
const UserAgent = "isobar-checker"

// The wait before a stream is opened again: doubled with each attempt that
// the server does not answer, and a random part of it.
const (
	leastBackoff = time.Second
	mostBackoff  = 30 * time.Second
)

// Checker is a client of the health discovery service.
type Checker struct {
	opts    Options
	client  healthv3.HealthDiscoveryServiceClient
	metrics *metrics
	log     *limitedLog
	loop    *loop

	// Of the stream's goroutine:
	reporter reporter
	applied  bool // content is set
	content  [sha256.Size]byte
}

// New makes a checker; [Checker.Run] starts it. Errors wrap [ErrOptions].
func New(opts Options) (*Checker, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(opts.Registerer)
	if err != nil {
		return nil, err
	}
	c := &Checker{
		opts: opts, client: healthv3.NewHealthDiscoveryServiceClient(opts.Conn),
		metrics: m, log: newLimitedLog(opts.Log),
	}
	c.loop = newLoop(&c.opts, m, c.log)
	return c, nil
}

// Run probes and reports until ctx ends, and has let go of everything when it
// returns. It is called once.
func (c *Checker) Run(ctx context.Context) {
	var probing sync.WaitGroup
	probing.Go(func() { c.loop.run(ctx) })
	defer probing.Wait()
	ceiling := leastBackoff
	for {
		answered, err := c.talk(ctx)
		c.metrics.connected.Set(0)
		if ctx.Err() != nil {
			return
		}
		if answered {
			ceiling = leastBackoff
		}
		wait := ceiling/2 + rand.N(ceiling/2) //nolint:gosec // jitter is no secret
		ceiling = min(2*ceiling, mostBackoff)
		c.metrics.reconnects.Inc()
		c.log.warn("no stream to the management server; probing goes on", c.trouble(err, wait)...)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// trouble is what the log tells of a stream that could not be had.
func (c *Checker) trouble(err error, wait time.Duration) []slog.Attr {
	out := []slog.Attr{slog.Any("error", err), slog.Duration("retry_in", wait)}
	if c.opts.Hint != nil && err != nil {
		if text := c.opts.Hint(err); text != "" {
			out = append(out, slog.String("hint", text))
		}
	}
	return out
}
