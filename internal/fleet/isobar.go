package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/checker"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/store"
)

// isobarServer is the real server on free ports of the loopback interface. It
// keeps its state in memory: a demo has nothing to remember.
type isobarServer struct {
	server *server.Server
	cancel context.CancelFunc
	ended  chan error
}

// ServeIsobar starts the real server, the one that `isobar serve` runs, and
// returns once it has published a plan.
func ServeIsobar(ctx context.Context, topology *isobar.Topology, s *Scenario) (Management, error) {
	cfg := config.Default()
	cfg.Admin.Writable = true
	cfg.StopSpread = 0
	cfg.ReportInterval, cfg.Tick = s.Interval, s.Interval
	cfg.Services, cfg.Network = topology.Services, topology.Network
	listeners, err := listenLoopback(ctx)
	if err != nil {
		return nil, err
	}
	srv, err := server.New(&cfg, listeners, server.Options{Store: store.NewMemory()})
	if err != nil {
		return nil, errors.Join(err, listeners.XDS.Close(), listeners.Admin.Close())
	}
	sv := &isobarServer{server: srv, ended: make(chan error, 1)}
	// The context bounds the start; the server itself runs until Stop.
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	sv.cancel = cancel
	go func() { sv.ended <- srv.Run(run) }()
	if err := sv.awaitPlan(ctx); err != nil {
		return nil, errors.Join(err, sv.Stop())
	}
	return sv, nil
}

// Mark marks the present moment in the server's charts.
func (s *isobarServer) Mark(text string) { s.server.Mark(text) }

// awaitPlan returns once the first plan is published: earlier requests to the server get an
// answer that says to wait.
func (s *isobarServer) awaitPlan(ctx context.Context) error {
	const patience = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for s.server.Plan() == nil {
		select {
		case err := <-s.ended:
			s.ended <- err // for Stop
			return errors.New("the server ended before its first plan")
		case <-ctx.Done():
			return fmt.Errorf("wait for the first plan: %w", ctx.Err())
		case <-poll.C:
		}
	}
	return nil
}

func listenLoopback(ctx context.Context) (server.Listeners, error) {
	var lc net.ListenConfig
	x, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return server.Listeners{}, fmt.Errorf("listen for xDS clients: %w", err)
	}
	a, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return server.Listeners{}, errors.Join(fmt.Errorf("listen for operators: %w", err), x.Close())
	}
	return server.Listeners{XDS: x, Admin: a}, nil
}

// XDSAddress implements [Management].
func (s *isobarServer) XDSAddress() string { return s.server.XDSAddress() }

// AdminAddress implements [Management].
func (s *isobarServer) AdminAddress() string { return s.server.AdminAddress() }

// Health implements [Management].
func (s *isobarServer) Health(ctx context.Context) (map[string]isobar.HealthStatus, error) {
	reports, err := s.server.Health(ctx, "")
	if err != nil {
		return nil, err
	}
	out := make(map[string]isobar.HealthStatus)
	for i := range reports {
		for j := range reports[i].Endpoints {
			v := &reports[i].Endpoints[j]
			out[v.Address] = v.Status
		}
	}
	return out, nil
}

// Stop implements [Management].
func (s *isobarServer) Stop() error {
	s.cancel()
	return <-s.ended
}

// Management is a running management server.
type Management interface {
	XDSAddress() string   // for the clients' bootstrap
	AdminAddress() string // of the HTTP API; empty when it has none
	// Health tells what health checkers agree on of the endpoints, by address.
	Health(ctx context.Context) (map[string]isobar.HealthStatus, error)
	// Stop ends the server and returns when nothing of it runs any more.
	Stop() error
}

// StartManagement starts a management server for a topology, with load
// reports and decisions as often as the scenario says. The context bounds the
// start only.
type StartManagement func(ctx context.Context, topology *isobar.Topology, s *Scenario) (Management, error)

// healthCheck is how checkers probe the backends.
func healthCheck() isobar.HealthCheck {
	return isobar.HealthCheck{
		Protocol: isobar.CheckGRPC, GRPC: &isobar.GRPCCheck{},
		Interval: 500 * time.Millisecond, Timeout: 300 * time.Millisecond,
		UnhealthyThreshold: 2, HealthyThreshold: 2,
	}
}

// checkers are the health checkers of a run, the ones that `isobar checker` runs.
type checkers struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	conns   []*grpc.ClientConn
}

// startChecker adds a checker that looks from a locality; dial opens the
// connections of its probes.
func (c *checkers) startChecker(ctx context.Context, server string, from isobar.Locality, dial Dialer) error {
	conn, err := grpc.NewClient("passthrough:///"+server,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig(),
		// The checker waits between attempts itself.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 500 * time.Millisecond, Multiplier: 1, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}))
	if err != nil {
		return fmt.Errorf("checker in %s: %w", from, err)
	}
	c.conns = append(c.conns, conn)
	ch, err := checker.New(checker.Options{
		Conn: conn, ID: "demo-checker-" + from.String(), Cluster: "checker", Locality: from,
		Dial: func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) },
	})
	if err != nil {
		return fmt.Errorf("checker in %s: %w", from, err)
	}
	c.running.Go(func() { ch.Run(ctx) })
	return nil
}

// startCheckers starts the scenario's checkers; they outlive the context.
func (r *Run) startCheckers(ctx context.Context) error {
	ctx, r.checkers.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, from := range r.scenario.Checkers {
		dial := DistantDialer(TCP, func(address string) time.Duration { return r.rtt(from, address) })
		if err := r.checkers.startChecker(ctx, r.manager.XDSAddress(), from, dial); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the checkers, and returns when nothing of them runs any more.
func (c *checkers) stop() error {
	if c.cancel != nil {
		c.cancel()
	}
	c.running.Wait()
	errs := make([]error, len(c.conns))
	for i, conn := range c.conns {
		errs[i] = conn.Close()
	}
	c.conns = nil
	return errors.Join(errs...)
}
