package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// run is one run of all clients.
type run struct {
	opts    Options
	catalog *catalog
	results *results
	clients []*client
}

// progressEvery is how often progress is told.
const progressEvery = 250 * time.Millisecond

// Run connects the clients, holds them for the duration, and tells what they
// saw. A run that is cut short by ctx tells what was seen until then.
func Run(ctx context.Context, opts Options) (Result, error) {
	if err := opts.complete(); err != nil {
		return Result{}, err
	}
	r := &run{opts: opts, catalog: newCatalog(), results: newResults()}
	began := time.Now()
	if err := r.learn(ctx); err != nil {
		return Result{}, err
	}
	if err := r.makeClients(); err != nil {
		return Result{}, err
	}
	out := Result{
		Clients: opts.Clients, Connections: opts.Connections, Services: len(r.opts.Services), Subscribed: r.opts.Subscribe,
	}
	for _, c := range r.clients {
		out.Streams += len(c.subscriptions)
	}
	for _, l := range r.opts.Localities {
		out.Localities = append(out.Localities, l.String())
	}
	err := r.phases(ctx, &out)
	out.Seconds = time.Since(began).Seconds()
	out.Pushes, out.PushBytes = r.results.pushes.Load(), r.results.bytes.Load()
	out.Spread = latency(r.results.takeSpreads())
	out.NACKs, out.Refusal = r.results.nacks.Load(), r.results.refusal
	out.Reports, out.ReportInterval = r.results.reports.Load(), time.Duration(r.results.interval.Load()).Seconds()
	out.Errors = r.results.failuresByStatus()
	return out, err
}

// phases connects, holds, and reconnects.
func (r *run) phases(ctx context.Context, out *Result) error {
	hold := time.Now().Add(r.opts.Duration)
	f, err := r.connect(ctx, r.opts.Ramp)
	if err != nil {
		return err
	}
	r.tell(Connecting)
	r.wait(ctx, Connecting, time.Now().Add(r.opts.Ramp+r.opts.Patience), r.allAnswered)
	out.FirstEDS = r.arrival()
	r.tell(Holding)
	r.wait(ctx, Holding, hold, func() bool { return false })
	f.drop()
	if !r.opts.Reconnect || ctx.Err() != nil {
		out.NoReconnect = r.opts.Reconnect
		return nil
	}
	for _, c := range r.clients {
		c.answered.Store(false)
		c.mu.Lock()
		clear(c.assigned)
		c.mu.Unlock()
	}
	r.tell(Reconnecting)
	if f, err = r.connect(ctx, 0); err != nil {
		return err
	}
	defer f.drop()
	r.wait(ctx, Reconnecting, time.Now().Add(r.opts.Patience), r.allAnswered)
	back := r.arrival()
	out.Reconnect = &back
	return nil
}

// arrival sums up how soon the clients got their first assignments.
func (r *run) arrival() Arrival {
	out := Arrival{Latency: latency(r.results.takeFirsts())}
	for _, c := range r.clients {
		switch {
		case !c.begun.Load(): // the run was cut short
			out.NotBegun++
		case !c.answered.Load():
			out.Silent++
		case !c.complete():
			out.Incomplete++
		}
	}
	return out
}

func (r *run) answered() int {
	n := 0
	for _, c := range r.clients {
		if c.answered.Load() {
			n++
		}
	}
	return n
}

func (r *run) allAnswered() bool { return r.answered() == len(r.clients) }

func (r *run) tell(p Phase) {
	if r.opts.Phase != nil {
		r.opts.Phase(p)
	}
}

// wait waits until all is done, and no longer than until the deadline.
func (r *run) wait(ctx context.Context, phase Phase, deadline time.Time, done func() bool) {
	began := time.Now()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		r.progress(phase, began, deadline)
		if done() || !time.Now().Before(deadline) {
			return
		}
		timer := time.NewTimer(time.Until(deadline))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-tick.C:
			timer.Stop()
		}
	}
}

func (r *run) progress(phase Phase, began, deadline time.Time) {
	if r.opts.Progress == nil {
		return
	}
	p := Progress{
		Phase: phase, Clients: len(r.clients), Answered: r.answered(),
		Pushes: r.results.pushes.Load(), Reports: r.results.reports.Load(), Errors: r.results.failures.Load(),
	}
	if phase == Holding {
		p.Done = 1
		if whole := deadline.Sub(began); whole > 0 {
			p.Done = min(1, float64(time.Since(began))/float64(whole))
		}
	} else {
		p.Done = float64(p.Answered) / float64(p.Clients)
	}
	r.opts.Progress(p)
}

// dial makes the i-th connection; it is opened by its first stream.
func (r *run) dial(i int) (*grpc.ClientConn, error) {
	var from net.Dialer
	if n := r.opts.Addresses; n > 0 {
		at := i%n + 1                                                                     // 127.0.0.2 is the first
		from.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, byte(at/250), byte(at%250+1))} //nolint:gosec // less than 256
	}
	conn, err := grpc.NewClient("passthrough:///"+r.opts.Target,
		grpc.WithContextDialer(func(ctx context.Context, target string) (net.Conn, error) {
			return from.DialContext(ctx, "tcp", target)
		}),
		grpc.WithTransportCredentials(r.opts.Credentials), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rpc.ServerCodec()), grpc.MaxCallRecvMsgSize(maxResponse)),
		// Clients wait between attempts themselves.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: retryDelay / 2, Multiplier: 1, Jitter: 0.2, MaxDelay: retryDelay / 2},
			MinConnectTimeout: 20 * time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", r.opts.Target, err)
	}
	return conn, nil
}

// maxResponse bounds what is taken from a server, bytes.
const maxResponse = 64 << 20

// fleet is all clients while they are connected.
type fleet struct {
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	conns  []*grpc.ClientConn
}

// connect lets all clients connect, spread over a time. They stay connected
// until they are dropped.
func (r *run) connect(ctx context.Context, ramp time.Duration) (*fleet, error) {
	f := &fleet{conns: make([]*grpc.ClientConn, r.opts.Connections)}
	ctx, f.cancel = context.WithCancel(ctx)
	for i := range f.conns {
		var err error
		if f.conns[i], err = r.dial(i); err != nil {
			f.conns = f.conns[:i]
			f.drop()
			return nil, err
		}
	}
	began := time.Now()
	for i, c := range r.clients {
		at := began.Add(time.Duration(float64(ramp) * float64(i) / float64(len(r.clients))))
		// Neighbours in time share a connection.
		conn := f.conns[i*len(f.conns)/len(r.clients)]
		f.tasks.Go(func() { c.live(ctx, conn, at, &f.tasks) })
	}
	return f, nil
}

// live is a client from when it connects until ctx ends.
func (c *client) live(ctx context.Context, conn *grpc.ClientConn, at time.Time, tasks *sync.WaitGroup) {
	if wait := time.Until(at); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
	c.begun.Store(true)
	tasks.Go(func() { c.report(ctx, conn) })
	c.discover(ctx, conn, at)
}

// drop closes all connections at once, and returns when nobody uses them any more.
func (f *fleet) drop() {
	f.cancel()
	errs := make([]error, len(f.conns))
	var closing sync.WaitGroup
	for i, conn := range f.conns {
		closing.Go(func() { errs[i] = conn.Close() })
	}
	closing.Wait()
	f.tasks.Wait()
	_ = errors.Join(errs...) // they are gone either way
}
