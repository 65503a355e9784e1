package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/isobar-xds/isobar"
)

// BackendOptions says what a backend can do.
type BackendOptions struct {
	Locality    isobar.Locality
	Concurrency int           // requests it works on at once, >= 1
	ServiceTime time.Duration // mean of one request; each takes half to one and a half times that
	MaxQueue    int           // requests that may wait; beyond it RESOURCE_EXHAUSTED
	Seed        uint64        // of the service times
	ORCA        bool          // report utilization with every response
	// RTT is the network latency, there and back, to a client that sends through
	// a proxy; nil = none.
	RTT func(from isobar.Locality) time.Duration
	// OnArrival is called for every request, also for those turned away; nil = not.
	OnArrival func()
	// Listener is where it listens, to be closed by it; nil = a free port of the
	// loopback interface.
	Listener net.Listener
}

// Backend is a real gRPC server with limited concurrency: requests beyond it
// wait, in order, so that an overloaded backend is slow. Health checks over gRPC
// do not wait: overload is not illness.
type Backend struct {
	opts     BackendOptions
	address  string
	server   *grpc.Server
	served   chan struct{} // closed when the server has ended
	workers  chan worker   // the idle ones
	inside   atomic.Int64  // requests waiting or worked on
	arrivals atomic.Int64

	mu   sync.Mutex
	rng  *rand.Rand
	hang chan struct{} // closed when it ends; nil = it does not hang
}

// worker works on one request at a time. It is free from a moment on that may
// lie a little in the past: timers come late, and a worker that counted from
// when its timer fired would have less capacity than declared.
type worker struct {
	free time.Time
}

// StartBackend starts a backend.
func StartBackend(opts BackendOptions) (*Backend, error) {
	if opts.Concurrency < 1 || opts.ServiceTime <= 0 || opts.MaxQueue < 0 {
		return nil, errors.New("backend: Concurrency must be >= 1, ServiceTime > 0 and MaxQueue >= 0")
	}
	lis := opts.Listener
	if lis == nil {
		var err error
		if lis, err = net.Listen("tcp", "127.0.0.1:0"); err != nil { //nolint:noctx // listening on loopback does not wait
			return nil, fmt.Errorf("backend: %w", err)
		}
	}
	b := &Backend{
		opts:    opts,
		address: lis.Addr().String(),
		served:  make(chan struct{}),
		workers: make(chan worker, opts.Concurrency),
		rng:     rand.New(rand.NewPCG(opts.Seed, 0)), //nolint:gosec // service times, no secrets
	}
	for range opts.Concurrency {
		b.workers <- worker{}
	}
	serverOptions := []grpc.ServerOption{grpc.WaitForHandlers(true)}
	if opts.ORCA {
		serverOptions = append(serverOptions, orca.CallMetricsServerOption(nil))
	}
	b.server = grpc.NewServer(serverOptions...)
	b.server.RegisterService(&backendService, b)
	healthpb.RegisterHealthServer(b.server, backendHealth{backend: b})
	go func() {
		defer close(b.served)
		_ = b.server.Serve(lis) // ends with Kill
	}()
	return b, nil
}

// Address is where it listens.
func (b *Backend) Address() string { return b.address }

// Locality is where it stands.
func (b *Backend) Locality() isobar.Locality { return b.opts.Locality }

// Capacity is what it can serve, requests/s.
func (b *Backend) Capacity() float64 {
	return float64(b.opts.Concurrency) / b.opts.ServiceTime.Seconds()
}

// Arrivals counts the requests that came, also those turned away.
func (b *Backend) Arrivals() int64 { return b.arrivals.Load() }

// Kill ends the backend at once, as a crash does: connections break, what it
// works on is lost, its port refuses. Safe to call twice.
func (b *Backend) Kill() {
	b.server.Stop()
	<-b.served
}

// serviceTime draws how long the next request takes.
func (b *Backend) serviceTime() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Duration(float64(b.opts.ServiceTime) * (0.5 + b.rng.Float64()))
}

// serve handles one request of a client that may be far away.
func (b *Backend) serve(ctx context.Context) error {
	oneWay := b.distance(ctx) / 2
	if oneWay <= 0 {
		return b.work(ctx)
	}
	if err := waitUntil(ctx, time.Now().Add(oneWay)); err != nil {
		return status.FromContextError(err).Err()
	}
	err := b.work(ctx)
	_ = waitUntil(ctx, time.Now().Add(oneWay))
	return err
}

// work waits for a worker, then takes its time.
func (b *Backend) work(ctx context.Context) error {
	arrived := time.Now()
	b.arrivals.Add(1)
	if b.opts.OnArrival != nil {
		b.opts.OnArrival()
	}
	if hung, err := b.await(ctx); err != nil {
		return err
	} else if hung {
		arrived = time.Now() // what it gets done begins now
	}
	inside := b.inside.Add(1)
	defer b.inside.Add(-1)
	if b.opts.ORCA {
		busy := min(inside-1, int64(b.opts.Concurrency)) // without the request that asks: it would find a server without load busy
		if rec := orca.CallMetricsRecorderFromContext(ctx); rec != nil {
			rec.SetApplicationUtilization(float64(busy) / float64(b.opts.Concurrency))
		}
	}
	if inside > int64(b.opts.Concurrency+b.opts.MaxQueue) {
		return status.Errorf(codes.ResourceExhausted, "%d requests wait already", b.opts.MaxQueue)
	}
	select {
	case w := <-b.workers:
		w.free = later(arrived, w.free).Add(b.serviceTime())
		timer := time.NewTimer(time.Until(w.free))
		<-timer.C
		hung, err := b.await(ctx)
		if hung {
			w.free = time.Now()
		}
		b.workers <- w
		return err
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// serveMethod is the one method of a backend.
const serveMethod = "/isobar.fleet.Backend/Serve"

// backendService describes the service to grpc-go; its messages are empty, so
// it needs no generated code.
var backendService = grpc.ServiceDesc{
	ServiceName: "isobar.fleet.Backend",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Serve", Handler: handleServe}},
}

// handleServe is what protoc-gen-go-grpc would generate for the method.
//
//nolint:revive // grpc-go's order of arguments
func handleServe(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	b, ok := srv.(*Backend)
	if !ok {
		return nil, status.Error(codes.Internal, "not a backend")
	}
	in := new(emptypb.Empty)
	if err := decode(in); err != nil {
		return nil, err
	}
	handler := func(ctx context.Context, _ any) (any, error) {
		if err := b.serve(ctx); err != nil {
			return nil, err
		}
		return new(emptypb.Empty), nil
	}
	if intercept == nil {
		return handler(ctx, in)
	}
	return intercept(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: serveMethod}, handler)
}

// Hang stops the backend from answering, as a deadlock does: it accepts
// connections, requests and health checks, and is silent. Safe to call twice.
func (b *Backend) Hang() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hang == nil {
		b.hang = make(chan struct{})
	}
}

// Resume ends a hang; what still waits is worked on. Safe to call twice.
func (b *Backend) Resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hang != nil {
		close(b.hang)
		b.hang = nil
	}
}

// await returns when the backend does not hang, or with an error when the
// context ends; hung tells whether it did.
func (b *Backend) await(ctx context.Context) (hung bool, err error) {
	for {
		b.mu.Lock()
		over := b.hang
		b.mu.Unlock()
		if over == nil {
			return hung, nil
		}
		hung = true
		select {
		case <-over:
		case <-ctx.Done():
			return hung, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// backendHealth answers health checks over gRPC.
type backendHealth struct {
	healthpb.UnimplementedHealthServer

	backend *Backend
}

// Check implements [healthpb.HealthServer].
func (h backendHealth) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if _, err := h.backend.await(ctx); err != nil {
		return nil, err
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}
