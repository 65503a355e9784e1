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

// Fault is how a station treats requests.
type Fault int32

// Faults. Well is none.
const (
	Well   Fault = iota
	Refuse       // its port refuses connections, and open ones are closed
	Hang         // it accepts requests and never answers
	Fail         // it answers 500 at once to 9 of 10 requests
)

// failing is the part of requests that a station with the fault Fail answers with 500.
const failing = 0.9

// sourceHeader names the zone that a request comes from, an index.
const sourceHeader = "X-Source"

// StationOptions are what a station can do.
type StationOptions struct {
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

// Station is an HTTP backend with limited concurrency. Requests beyond it wait in
// order of arrival; a request whose client has left stops waiting.
type Station struct {
	opts     StationOptions
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

// utilizationTime is the time constant of the utilization that a station reports.
const utilizationTime = time.Second

// utilizationHeader is where HTTP backends report ORCA metrics.
const utilizationHeader = "Endpoint-Load-Metrics"

// StartStation starts a station.
func StartStation(o StationOptions) (*Station, error) {
	if o.Concurrency < 1 || o.ServiceTime <= 0 {
		return nil, errors.New("station: Concurrency must be >= 1 and ServiceTime > 0")
	}
	s := &Station{
		opts: o, address: o.Address, workers: make(chan time.Time, o.Concurrency), hung: make(chan struct{}),
		body: bytes.Repeat([]byte("."), o.Body), slow: 1,
		rng: rand.New(rand.NewPCG(o.Seed, 1)), //nolint:gosec // service times, no secrets
	}
	for range o.Concurrency {
		s.workers <- time.Time{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s, s.listen()
}

// Address is where the station listens, or refuses.
func (s *Station) Address() string { return s.address }

// Served counts the requests that it has answered with 200.
func (s *Station) Served() int64 { return s.served.Load() }

// Set changes how the station treats requests from now on.
func (s *Station) Set(f Fault) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault.Store(int32(f))
	close(s.hung)
	s.hung = make(chan struct{})
	switch {
	case f == Refuse && s.server != nil:
		err := s.server.Close()
		s.server = nil
		return err
	case f != Refuse && s.server == nil:
		return s.listen()
	}
	return nil
}

// Close ends the station.
func (s *Station) Close() error { return s.Set(Refuse) }

func (s *Station) listen() error {
	l, err := net.Listen("tcp", s.address) //nolint:noctx // listening on loopback does not wait
	if err != nil {
		return fmt.Errorf("station: %w", err)
	}
	s.address = l.Addr().String()
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func(server *http.Server) { _ = server.Serve(l) }(s.server) // ends with Close
	return nil
}

func (s *Station) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	if s.opts.Delay != nil && !wait(ctx, s.opts.Delay(r.Header.Get(sourceHeader))) {
		return
	}
	status := s.handle(ctx)
	if status == 0 { // the client has left
		return
	}
	if status == http.StatusOK {
		s.served.Add(1)
	}
	if n := s.opts.CloseEvery; n > 0 && s.answered.Add(1)%n == 0 {
		w.Header().Set("Connection", "close")
	}
	if s.opts.ORCA {
		w.Header().Set(utilizationHeader, fmt.Sprintf("TEXT application_utilization=%.4f", s.utilization(0)))
	}
	w.WriteHeader(status)
	_, _ = w.Write(s.body)
}

// handle returns the status of the response, 0 where nobody waits for it.
func (s *Station) handle(ctx context.Context) int {
	switch Fault(s.fault.Load()) {
	case Hang:
		if !s.hang(ctx) {
			return 0
		}
	case Fail:
		if s.random() < failing {
			return http.StatusInternalServerError
		}
	default:
	}
	arrived := time.Now()
	inside := s.inside.Add(1)
	defer s.inside.Add(-1)
	if s.opts.Limit > 0 && inside > int64(s.opts.Limit) {
		return http.StatusServiceUnavailable
	}
	select {
	case free := <-s.workers:
		// Timers come late: a worker counts from when it was free or the request
		// arrived, or the station would have less capacity than it should.
		if free.Before(arrived) {
			free = arrived
		}
		free = free.Add(s.begin())
		wait(context.Background(), time.Until(free)) // work that was begun is done, even if its client no longer waits
		s.workers <- free
		if ctx.Err() != nil {
			return 0
		}
		return http.StatusOK
	case <-ctx.Done():
		return 0
	}
}

// hang waits until the client leaves, or the fault ends: then it reports true.
func (s *Station) hang(ctx context.Context) bool {
	s.mu.Lock()
	hung := s.hung
	s.mu.Unlock()
	select {
	case <-hung:
		return true
	case <-ctx.Done():
		return false
	}
}

// Slow lets every request that begins from now on take so many times as long.
func (s *Station) Slow(factor float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = factor
}

// begin chooses how long a request takes, and counts that as work.
func (s *Station) begin() time.Duration {
	length := time.Duration(float64(s.opts.ServiceTime) * (0.5 + s.random()))
	s.mu.Lock()
	length = time.Duration(float64(length) * s.slow)
	s.mu.Unlock()
	s.utilization(length)
	return length
}

// utilization returns the work that was begun as a share of what the workers can do,
// about the mean of the last utilizationTime, after the work of another request.
func (s *Station) utilization(more time.Duration) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.work *= math.Exp(-float64(now.Sub(s.worked)) / float64(utilizationTime))
	s.work += float64(more) / float64(utilizationTime) / float64(s.opts.Concurrency)
	s.worked = now
	return s.work
}

func (s *Station) random() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.Float64()
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
