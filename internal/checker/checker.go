// Package checker is a client of the health discovery service (HDS v3): a
// management server designates endpoints, the checker probes them over HTTP,
// TCP, gRPC or Redis as Envoy does, and reports what it finds. It is for fleets
// without Envoy.
//
// One goroutine, in loop.go, owns the state: which endpoints are probed, when
// each is due, and what became of its probes. The stream to the server, in
// stream.go, hands it validated specifiers and reads statuses; probes run on a
// bounded number of goroutines. While the server is away probing goes on.
package checker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
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
		c.log.warn("no stream to the management server; the checker continues to probe", c.trouble(err, wait)...)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// trouble is the log entry for a stream that could not be opened.
func (c *Checker) trouble(err error, wait time.Duration) []slog.Attr {
	out := []slog.Attr{slog.Any("error", err), slog.Duration("retry_in", wait)}
	if c.opts.Hint != nil && err != nil {
		if text := c.opts.Hint(err); text != "" {
			out = append(out, slog.String("hint", text))
		}
	}
	return out
}

// Defaults of the limits in [Options].
const (
	DefaultMaxProbes    = 2048
	DefaultMaxEndpoints = 20_000
)

// Upper bounds of the limits: more goroutines only cost memory, and a report
// of more endpoints would not fit the 4 MiB that servers commonly take.
const (
	mostProbes    = 1 << 16
	mostEndpoints = 30_000
)

// ErrOptions is wrapped by every error of [New].
var ErrOptions = errors.New("bad checker options")

// Options says who a checker is and what it may use. Conn and ID are required.
type Options struct {
	// Conn leads to the management server; the caller closes it. Its own
	// back-off should be short: the checker waits between attempts itself.
	Conn     grpc.ClientConnInterface
	ID       string          // node.id
	Cluster  string          // node.cluster
	Locality isobar.Locality // node.locality: where the checker looks from
	Version  string          // of this program, for node.user_agent_version

	MaxProbes    int // probes at once; 0 = DefaultMaxProbes
	MaxEndpoints int // endpoints probed; what a specifier has beyond it is refused; 0 = DefaultMaxEndpoints

	// Dial opens the connections of probes; network is "tcp" or "unix". It must
	// be safe for concurrent use and return when ctx ends. nil = the system's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// NewProber makes what probes an endpoint, in place of the real protocols.
	NewProber func(Target, *corev3.HealthCheck) (Prober, error)

	// Hint tells what to do about a stream that failed; "" where it does not know.
	Hint       func(error) string    // nil = no hints
	Log        *slog.Logger          // nil = none
	Registerer prometheus.Registerer // nil = metrics are not registered
}

// complete fills in defaults and refuses what cannot work.
func (o Options) complete() (Options, error) {
	switch {
	case o.Conn == nil:
		return o, fmt.Errorf("%w: Conn is required", ErrOptions)
	case o.ID == "":
		return o, fmt.Errorf("%w: ID is required: it identifies the reports of a checker", ErrOptions)
	case o.MaxProbes < 0 || o.MaxProbes > mostProbes:
		return o, fmt.Errorf("%w: MaxProbes %d: want 1 to %d", ErrOptions, o.MaxProbes, mostProbes)
	case o.MaxEndpoints < 0 || o.MaxEndpoints > mostEndpoints:
		return o, fmt.Errorf("%w: MaxEndpoints %d: want 1 to %d", ErrOptions, o.MaxEndpoints, mostEndpoints)
	}
	if o.MaxProbes == 0 {
		o.MaxProbes = DefaultMaxProbes
	}
	if o.MaxEndpoints == 0 {
		o.MaxEndpoints = DefaultMaxEndpoints
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// limitedLog bounds what a server or an endpoint can make a checker log.
type limitedLog struct {
	to    *slog.Logger
	limit rpc.LogLimit
}

func newLimitedLog(to *slog.Logger) *limitedLog {
	return &limitedLog{to: to, limit: rpc.LogLimit{Lines: 50}}
}

func (l *limitedLog) info(msg string, attrs ...slog.Attr)  { l.write(slog.LevelInfo, msg, attrs) }
func (l *limitedLog) warn(msg string, attrs ...slog.Attr)  { l.write(slog.LevelWarn, msg, attrs) }
func (l *limitedLog) error(msg string, attrs ...slog.Attr) { l.write(slog.LevelError, msg, attrs) }

func (l *limitedLog) write(level slog.Level, msg string, attrs []slog.Attr) {
	ctx := context.Background()
	if !l.to.Enabled(ctx, level) {
		return
	}
	skipped, ok := l.limit.Allow(time.Now())
	if !ok {
		return
	}
	if skipped > 0 {
		attrs = append(attrs, slog.Int("skipped_lines", skipped))
	}
	l.to.LogAttrs(ctx, level, msg, attrs...) //nolint:sloglint // the callers' are literals
}
