package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/isobar-xds/isobar"
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

// awaitPlan returns once the first plan is published: whoever asks the server
// before that gets an answer that says to wait.
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
