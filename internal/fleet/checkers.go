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
)

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
