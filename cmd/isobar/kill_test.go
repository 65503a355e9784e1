package main

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet"
)

// TestKillAndRestartUnderLoad kills the server with SIGKILL while real grpc-go
// xDS clients send requests, and starts it again on the same state: no request
// fails, the weights are those from before, and versions go on.
func TestKillAndRestartUnderLoad(t *testing.T) {
	zones := []isobar.Locality{isobar.MustLocality("us/a"), isobar.MustLocality("us/b")}
	// Without declared capacity shares depend on where demand comes from, not on
	// how much it is, so that they stand still under random arrivals: all
	// clients are in one of two zones, which keeps 1.25/2 of it.
	p := newProcess(t, "", zones, nil)
	p.start()
	p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
	clients := p.clients(zones[:1], 2)
	var failed, sent atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for i, c := range clients {
		gen := fleet.Poisson{
			Seed: uint64(i), Rate: func(time.Time) float64 { return 60 },
			Send: func(ctx context.Context, _ time.Time) {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
				defer cancel()
				sent.Add(1)
				if _, err := c.Call(ctx); err != nil {
					failed.Add(1)
					t.Logf("a request failed: %v", err)
				}
			},
			Refuse: func(time.Time) { failed.Add(1) },
		}
		load.Go(func() { gen.Run(ctx) })
	}
	// Demand is measured, and the shares of a source stand for three plans.
	before := p.await("steady shares at measured demand", func(v admin.PlanView) bool { return p.steady(v, 100) })

	p.kill()
	calm := sent.Load() + 120 // about a second without a server
	for sent.Load() < calm {
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // real processes: bounded by the load
	}
	p.start()
	after := p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
	if !reflect.DeepEqual(weights(before), weights(after)) {
		t.Errorf("weights before: %v\nafter: %v", weights(before), weights(after))
	}
	if number(t, after.Version) <= number(t, before.Version) {
		t.Errorf("version went from %s to %s", before.Version, after.Version)
	}
	// The clients come back and report; what they are told stays the same.
	later := p.await("reports of all clients", func(v admin.PlanView) bool { return p.steady(v, 100) && v.Services[0].Hold == "" })
	if !reflect.DeepEqual(weights(before), weights(later)) {
		t.Errorf("weights before: %v\nwith reports again: %v", weights(before), weights(later))
	}
	stop()
	load.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d of %d requests failed", failed.Load(), sent.Load())
	}
}
