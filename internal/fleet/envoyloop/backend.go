// Package envoyloop runs the closed loop with real Envoys: a server, proxies that
// report load to it, backends that queue and fail, and clients that send at a
// rate of their own. Benchmarks and tests use it.
package envoyloop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Fault is how a backend treats requests.
type Fault int32

// Faults. Well is none.
const (
	Well   Fault = iota
	Refuse       // its port refuses connections, and open ones are closed
	Hang         // it accepts requests and never answers
	Fail         // it answers 500 at once to 9 of 10 requests
)

// failing is the part of requests that a backend with the fault Fail answers with 500.
const failing = 0.9

// sourceHeader names the zone that a request comes from, an index.
const sourceHeader = "X-Source"

// BackendOptions are what a backend can do.
type BackendOptions struct {
	Address     string                            // IP:port; the port may be 0
	Concurrency int                               // requests that it works on at once, >= 1
	ServiceTime time.Duration                     // mean of one request; each takes half to one and a half times that
	Limit       int                               // requests that may be inside, beyond which it answers 503 at once; 0 = all wait
	Delay       func(source string) time.Duration // network latency there and back; nil = none
	CloseEvery  uint64                            // it closes connections after so many requests of all; 0 = it keeps them
	Seed        uint64                            // of the service times
	ORCA        bool                              // it reports its utilization with each response
	Body        int                               // bytes of a response
}

// Backend is an HTTP backend with limited concurrency. Requests beyond it wait in
// order of arrival; a request whose client has left stops waiting.
type Backend struct {
	opts     BackendOptions
	address  string
	workers  chan time.Time // of each idle worker, when it became free
	fault    atomic.Int32
	inside   atomic.Int64
	served   atomic.Int64
	answered atomic.Uint64
	body     []byte

	mu     sync.Mutex
	rng    *rand.Rand
	server *http.Server  // nil while it refuses
	hung   chan struct{} // closed when the fault changes
	slow   float64       // factor on the service times
	work   float64       // utilization, smoothed with utilizationTime
	worked time.Time     // when work was last changed
}

// utilizationTime is the time constant of the utilization that a backend reports.
const utilizationTime = time.Second

// utilizationHeader is where HTTP backends report ORCA metrics.
const utilizationHeader = "Endpoint-Load-Metrics"

// StartBackend starts a backend.
func StartBackend(o BackendOptions) (*Backend, error) {
	if o.Concurrency < 1 || o.ServiceTime <= 0 {
		return nil, errors.New("backend: Concurrency must be >= 1 and ServiceTime > 0")
	}
	b := &Backend{
		opts: o, address: o.Address, workers: make(chan time.Time, o.Concurrency), hung: make(chan struct{}),
		body: bytes.Repeat([]byte("."), o.Body), slow: 1,
		rng: rand.New(rand.NewPCG(o.Seed, 1)), //nolint:gosec // service times, no secrets
	}
	for range o.Concurrency {
		b.workers <- time.Time{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b, b.listen()
}

// Address is where the backend listens, or refuses.
func (b *Backend) Address() string { return b.address }

// Served counts the requests that it has answered with 200.
func (b *Backend) Served() int64 { return b.served.Load() }

// Set changes how the backend treats requests from now on.
func (b *Backend) Set(f Fault) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault.Store(int32(f))
	close(b.hung)
	b.hung = make(chan struct{})
	switch {
	case f == Refuse && b.server != nil:
		err := b.server.Close()
		b.server = nil
		return err
	case f != Refuse && b.server == nil:
		return b.listen()
	}
	return nil
}

// Close ends the backend.
func (b *Backend) Close() error { return b.Set(Refuse) }

func (b *Backend) listen() error {
	l, err := net.Listen("tcp", b.address) //nolint:noctx // listening on loopback does not wait
	if err != nil {
		return fmt.Errorf("backend: %w", err)
	}
	b.address = l.Addr().String()
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: time.Minute}
	go func(server *http.Server) { _ = server.Serve(l) }(b.server) // ends with Close
	return nil
}

func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	if b.opts.Delay != nil && !wait(ctx, b.opts.Delay(r.Header.Get(sourceHeader))) {
		return
	}
	status := b.handle(ctx)
	if status == 0 { // the client has left
		return
	}
	if status == http.StatusOK {
		b.served.Add(1)
	}
	if n := b.opts.CloseEvery; n > 0 && b.answered.Add(1)%n == 0 {
		w.Header().Set("Connection", "close")
	}
	if b.opts.ORCA {
		w.Header().Set(utilizationHeader, fmt.Sprintf("TEXT application_utilization=%.4f", b.utilization(0)))
	}
	w.WriteHeader(status)
	_, _ = w.Write(b.body)
}

// handle returns the status of the response, 0 where nobody waits for it.
func (b *Backend) handle(ctx context.Context) int {
	switch Fault(b.fault.Load()) {
	case Hang:
		if !b.hang(ctx) {
			return 0
		}
	case Fail:
		if b.random() < failing {
			return http.StatusInternalServerError
		}
	default:
	}
	arrived := time.Now()
	inside := b.inside.Add(1)
	defer b.inside.Add(-1)
	if b.opts.Limit > 0 && inside > int64(b.opts.Limit) {
		return http.StatusServiceUnavailable
	}
	select {
	case free := <-b.workers:
		// Timers come late: a worker counts from when it was free or the request
		// arrived, or the backend would have less capacity than it should.
		if free.Before(arrived) {
			free = arrived
		}
		free = free.Add(b.begin())
		wait(context.Background(), time.Until(free)) // work that was begun is done, even if its client no longer waits
		b.workers <- free
		if ctx.Err() != nil {
			return 0
		}
		return http.StatusOK
	case <-ctx.Done():
		return 0
	}
}

// hang waits until the client leaves, or the fault ends: then it reports true.
func (b *Backend) hang(ctx context.Context) bool {
	b.mu.Lock()
	hung := b.hung
	b.mu.Unlock()
	select {
	case <-hung:
		return true
	case <-ctx.Done():
		return false
	}
}

// Slow lets every request that begins from now on take so many times as long.
func (b *Backend) Slow(factor float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slow = factor
}

// begin chooses how long a request takes, and counts that as work.
func (b *Backend) begin() time.Duration {
	length := time.Duration(float64(b.opts.ServiceTime) * (0.5 + b.random()))
	b.mu.Lock()
	length = time.Duration(float64(length) * b.slow)
	b.mu.Unlock()
	b.utilization(length)
	return length
}

// utilization returns the work that was begun as a share of what the workers can do,
// about the mean of the last utilizationTime, after the work of another request.
func (b *Backend) utilization(more time.Duration) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.work *= math.Exp(-float64(now.Sub(b.worked)) / float64(utilizationTime))
	b.work += float64(more) / float64(utilizationTime) / float64(b.opts.Concurrency)
	b.worked = now
	return b.work
}

func (b *Backend) random() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rng.Float64()
}

// wait reports whether the time has passed before the context ended.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
