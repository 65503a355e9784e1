package server_test

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestAHerdIsNotSentAwayAsAHerd: clients that connected all at once over the
// network are sent away one after the other, as all others.
func TestAHerdIsNotSentAwayAsAHerd(t *testing.T) {
	const spread = 2 * time.Second
	all := make([]watcher, 50)
	var running sync.WaitGroup
	ctx := t.Context()
	t.Run("server", func(t *testing.T) { // which stops at the end of it
		l := onLoopback(t, func(c *config.Config) { c.StopSpread = spread })
		for i := range all {
			conn, err := grpc.NewClient(l.server.XDSAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			running.Go(func() {
				defer func() { _ = conn.Close() }()
				if err := all[i].run(ctx, conn); err != nil {
					t.Error(err)
				}
			})
		}
		testhelp.Eventually(t, "all are connected", func() bool {
			return l.metric("isobar_xds_streams", "sotw") == float64(len(all))
		})
	})
	running.Wait()
	first, last := all[0].ended, all[0].ended
	for i := range all {
		if at := all[i].ended; at.Before(first) {
			first = at
		} else if at.After(last) {
			last = at
		}
	}
	if took := last.Sub(first); took < spread/2 {
		t.Errorf("%d clients were sent away within %v, want about %v", len(all), took, spread)
	}
}
