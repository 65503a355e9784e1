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

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

func dial(t *testing.T, b *fleet.Backend) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(b.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func serve(ctx context.Context, conn *grpc.ClientConn) error {
	return conn.Invoke(ctx, "/isobar.fleet.Backend/Serve", new(emptypb.Empty), new(emptypb.Empty))
}

// TestBackendQueues sends a burst: it is worked off at the backend's capacity,
// neither faster nor noticeably slower, and what exceeds the queue is refused.
func TestBackendQueues(t *testing.T) {
	var arrivals atomic.Int64
	b := backend(t, fleet.BackendOptions{
		Locality: zoneA, Concurrency: 4, ServiceTime: 10 * time.Millisecond, MaxQueue: 96, Seed: 1, ORCA: true,
		OnArrival: func() { arrivals.Add(1) },
	})
	near(t, "capacity", b.Capacity(), 400, 1e-9)
	conn := dial(t, b)
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
	took := time.Since(began)
	if served.Load() < 100 || refused.Load() == 0 || served.Load()+refused.Load() != burst {
		t.Errorf("%d served, %d refused", served.Load(), refused.Load())
	}
	want := time.Duration(float64(served.Load()) / b.Capacity() * float64(time.Second))
	if took < want*8/10 {
		t.Errorf("%d requests took %v, less than capacity allows (%v)", served.Load(), took, want)
	}
	if arrivals.Load() != burst+1 || b.Arrivals() != burst+1 {
		t.Errorf("%d and %d arrivals", arrivals.Load(), b.Arrivals())
	}
}

func TestBackendGivesUpWithTheDeadline(t *testing.T) {
	b := backend(t, fleet.BackendOptions{Locality: zoneA, Concurrency: 1, ServiceTime: 300 * time.Millisecond, MaxQueue: 10, Seed: 1})
	conn := dial(t, b)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _ = serve(t.Context(), conn) })
	testhelp.Eventually(t, "the worker is busy", func() bool { return b.Arrivals() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := serve(ctx, conn); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("waiting beyond the deadline: %v", err)
	}
}

func TestBackendDiesAtOnce(t *testing.T) {
	b := backend(t, fleet.BackendOptions{Locality: zoneA, Concurrency: 1, ServiceTime: 100 * time.Millisecond, MaxQueue: 10})
	conn := dial(t, b)
	errs := make(chan error, 3)
	for range cap(errs) {
		go func() { errs <- serve(t.Context(), conn) }()
	}
	testhelp.Eventually(t, "all have arrived", func() bool { return b.Arrivals() == 3 })
	b.Kill()
	for range cap(errs) {
		if err := <-errs; status.Code(err) != codes.Unavailable {
			t.Errorf("a request to a dying backend: %v", err)
		}
	}
	if err := serve(t.Context(), conn); status.Code(err) != codes.Unavailable {
		t.Errorf("a request to a dead backend: %v", err)
	}
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
	synctest.Test(t, func(t *testing.T) {
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
			Refuse: func(time.Time) { refused.Add(1) },
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
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var refused atomic.Int64
		hang := make(chan struct{})
		p := &fleet.Poisson{
			Rate:    func(time.Time) float64 { return 100 },
			MaxOpen: 10,
			Send:    func(context.Context, time.Time) { <-hang },
			Refuse:  func(time.Time) { refused.Add(1) },
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

// TestDistance sees that distance delays without narrowing: many messages are
// under way at once, and each way takes half of the round trip.
func TestDistance(t *testing.T) {
	const rtt = 100 * time.Millisecond
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := lis.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.Copy(conn, conn)
	}()
	dialer := fleet.DistantDialer(func(string) time.Duration { return rtt })
	began := time.Now()
	conn, err := dialer(t.Context(), lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < rtt {
		t.Errorf("opening took %v, less than a round trip", took)
	}
	const messages = 50
	began = time.Now()
	for range messages {
		if _, err := conn.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > rtt/2 {
		t.Errorf("writing took %v: it waits for the distance", took)
	}
	if _, err := io.ReadFull(conn, make([]byte, 5*messages)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < rtt || took > 10*rtt {
		t.Errorf("%d messages there and back took %v, want about one round trip (%v)", messages, took, rtt)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if _, err := conn.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("writing to a closed connection: %v", err)
	}
	<-served
	_ = lis.Close()

	began = time.Now()
	if conn, err := dialer(t.Context(), lis.Addr().String()); err == nil {
		_ = conn.Close()
		t.Error("a closed port was opened")
	}
	if took := time.Since(began); took < rtt {
		t.Errorf("the refusal came after %v, less than a round trip", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dialer(ctx, lis.Addr().String()); err == nil {
		t.Error("dialled with a dead context")
	}
}
