package fleet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	orcapb "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// inMemory starts a backend in a bubble of virtual time. dial makes connections
// to it.
func inMemory(t *testing.T, opts fleet.BackendOptions) (b *fleet.Backend, dial func() *grpc.ClientConn) {
	t.Helper()
	lis := bufconn.Listen(1 << 16)
	opts.Listener = lis
	return backend(t, opts), func() *grpc.ClientConn {
		conn := testhelp.Dial(t, lis)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

func serve(ctx context.Context, conn *grpc.ClientConn) error {
	return conn.Invoke(ctx, "/isobar.fleet.Backend/Serve", new(emptypb.Empty), new(emptypb.Empty))
}

// TestBackendQueues sends a burst: it is worked off at the backend's capacity,
// neither faster nor noticeably slower, and what exceeds the queue is refused.
func TestBackendQueues(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var arrivals atomic.Int64
		b, dial := inMemory(t, fleet.BackendOptions{
			Locality: zoneA, Concurrency: 4, ServiceTime: 10 * time.Millisecond, MaxQueue: 96, Seed: 1, ORCA: true,
			OnArrival: func() { arrivals.Add(1) },
		})
		near(t, "capacity", b.Capacity(), 400, 1e-9)
		conn := dial()
		if err := serve(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		const burst = 150
		began := time.Now()
		var refused, served atomic.Int64
		var wg sync.WaitGroup
		for range burst {
			wg.Go(func() {
				switch err := serve(t.Context(), conn); status.Code(err) {
				case codes.OK:
					served.Add(1)
				case codes.ResourceExhausted:
					refused.Add(1)
				default:
					t.Errorf("unexpected: %v", err)
				}
			})
		}
		wg.Wait()
		if served.Load() != 100 || refused.Load() != 50 {
			t.Errorf("%d served, %d refused", served.Load(), refused.Load())
		}
		near(t, "seconds for 100 requests", time.Since(began).Seconds(), 100/b.Capacity(), 0.025)
		if arrivals.Load() != burst+1 || b.Arrivals() != burst+1 {
			t.Errorf("%d and %d arrivals", arrivals.Load(), b.Arrivals())
		}
	})
}

// TestBackendReportsUtilization: the utilization is that which a request finds, so a
// backend without other requests reports none, and one that works on three of four 0.75.
func TestBackendReportsUtilization(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, dial := inMemory(t, fleet.BackendOptions{Locality: zoneA, Concurrency: 4, ServiceTime: 10 * time.Millisecond, MaxQueue: 10, Seed: 1, ORCA: true})
		conn := dial()
		reported := func() float64 {
			var trailer metadata.MD
			if err := conn.Invoke(t.Context(), "/isobar.fleet.Backend/Serve", new(emptypb.Empty), new(emptypb.Empty), grpc.Trailer(&trailer)); err != nil {
				t.Error(err)
			}
			var report orcapb.OrcaLoadReport
			for _, v := range trailer.Get("endpoint-load-metrics-bin") {
				if err := proto.Unmarshal([]byte(v), &report); err != nil {
					t.Error(err)
				}
			}
			return report.GetApplicationUtilization()
		}
		near(t, "utilization without other requests", reported(), 0, 1e-9)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { reported() })
		}
		synctest.Wait()
		near(t, "utilization beside three requests", reported(), 0.75, 1e-9)
		wg.Wait()
	})
}

func TestBackendGivesUpWithTheDeadline(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b, dial := inMemory(t, fleet.BackendOptions{Locality: zoneA, Concurrency: 1, ServiceTime: 300 * time.Millisecond, MaxQueue: 10, Seed: 1})
		conn := dial()
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { _ = serve(t.Context(), conn) })
		synctest.Wait()
		if b.Arrivals() != 1 {
			t.Errorf("%d requests have arrived, want that which keeps the worker busy", b.Arrivals())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := serve(ctx, conn); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("waiting beyond the deadline: %v", err)
		}
	})
}

func TestBackendDiesAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b, dial := inMemory(t, fleet.BackendOptions{Locality: zoneA, Concurrency: 1, ServiceTime: 100 * time.Millisecond, MaxQueue: 10})
		conn := dial()
		errs := make(chan error, 3)
		for range cap(errs) {
			go func() { errs <- serve(t.Context(), conn) }()
		}
		synctest.Wait()
		b.Kill()
		for range cap(errs) {
			if err := <-errs; status.Code(err) != codes.Unavailable {
				t.Errorf("a request to a dying backend: %v", err)
			}
		}
		if b.Arrivals() != 3 {
			t.Errorf("%d requests had arrived, want all", b.Arrivals())
		}
		if err := serve(t.Context(), conn); status.Code(err) != codes.Unavailable {
			t.Errorf("a request to a dead backend: %v", err)
		}
	})
}

func TestBackendRefusesBadOptions(t *testing.T) {
	for _, opts := range []fleet.BackendOptions{
		{Concurrency: 0, ServiceTime: time.Second}, {Concurrency: 1}, {Concurrency: 1, ServiceTime: 1, MaxQueue: -1},
	} {
		if b, err := fleet.StartBackend(opts); err == nil {
			b.Kill()
			t.Errorf("%+v: no error", opts)
		}
	}
}

func TestPoissonRate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var requests, refused atomic.Int64
		began := time.Now()
		p := &fleet.Poisson{
			Seed: 7,
			Rate: func(now time.Time) float64 {
				if now.Sub(began) < 100*time.Second {
					return 50
				}
				return 0
			},
			MaxOpen: 100,
			Send: func(_ context.Context, _ time.Time) {
				requests.Add(1)
				<-time.After(time.Second)
			},
			Refuse: func(time.Time, string) { refused.Add(1) },
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Run(ctx)
		}()
		pass(200 * time.Second)
		// 5,000 expected, with a standard deviation of 71; about 50 are open at
		// once, so that 100 are never exceeded.
		near(t, "requests", float64(requests.Load()), 5000, 250)
		if refused.Load() != 0 {
			t.Errorf("%d refused", refused.Load())
		}
		cancel()
		<-done
	})
}

func TestPoissonBoundsWhatIsOpen(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var refused atomic.Int64
		hang := make(chan struct{})
		p := &fleet.Poisson{
			Rate:    func(time.Time) float64 { return 100 },
			MaxOpen: 10,
			Send:    func(context.Context, time.Time) { <-hang },
			Refuse:  func(time.Time, string) { refused.Add(1) },
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Run(ctx)
		}()
		pass(10 * time.Second)
		near(t, "refused", float64(refused.Load()), 990, 150)
		cancel()
		close(hang)
		<-done
	})
}

// TestPoissonCatchesUp: a generator that could not run for ten seconds refuses what should have
// been sent more than a second ago, and sends the rest.
func TestPoissonCatchesUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var sent, late atomic.Int64
		asked := 0
		p := &fleet.Poisson{
			Rate: func(time.Time) float64 {
				if asked++; asked == 100 {
					<-time.After(10 * time.Second)
				}
				return 100
			},
			MaxLate: time.Second,
			Send: func(_ context.Context, due time.Time) {
				if sent.Add(1); time.Since(due) > time.Second {
					t.Errorf("sent %v late", time.Since(due))
				}
			},
			Refuse: func(_ time.Time, why string) {
				if late.Add(1); why != "sent too late" {
					t.Errorf("refused: %s", why)
				}
			},
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Run(ctx)
		}()
		pass(20 * time.Second)
		near(t, "refused", float64(late.Load()), 900, 150)
		near(t, "sent", float64(sent.Load()), 1100, 150)
		cancel()
		<-done
	})
}

// TestDistance sees that distance delays without narrowing: many messages are
// under way at once, and each way takes half of the round trip.
func TestDistance(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const rtt = 100 * time.Millisecond
		var began time.Time
		took := func(what string, want time.Duration) {
			t.Helper()
			if got := time.Since(began); got != want {
				t.Errorf("%s took %v, want %v", what, got, want)
			}
			began = time.Now()
		}
		near, far := net.Pipe()
		served := make(chan struct{})
		go func() {
			defer close(served)
			_, _ = io.Copy(far, far)
			_ = far.Close()
		}()
		refusal := errors.New("refused")
		dialer := fleet.DistantDialer(func(_ context.Context, address string) (net.Conn, error) {
			if address != "far" {
				return nil, refusal
			}
			return near, nil
		}, func(string) time.Duration { return rtt })
		began = time.Now()
		conn, err := dialer(t.Context(), "far")
		if err != nil {
			t.Fatal(err)
		}
		took("opening", rtt)
		const messages = 50
		for range messages {
			if _, err := conn.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
		}
		took("writing, which does not wait", 0)
		if _, err := io.ReadFull(conn, make([]byte, 5*messages)); err != nil {
			t.Fatal(err)
		}
		took("the way there and back of all messages", rtt)
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if _, err := conn.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("writing to a closed connection: %v", err)
		}
		<-served
		if _, err := dialer(t.Context(), "nowhere"); !errors.Is(err, refusal) {
			t.Errorf("opening what refuses: %v", err)
		}
		took("the refusal", rtt)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if conn, err := dialer(ctx, "nowhere"); err == nil {
			_ = conn.Close()
			t.Error("dialled with a dead context")
		}
		took("a dead context", 0)
	})
}
