package fleet

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Poisson sends requests in an open loop: they come at random with a mean
// rate, whether the earlier ones are answered or not.
type Poisson struct {
	// Rate is the mean rate wanted now, requests/s. It is asked again for every
	// request, and every 50 ms while it is 0.
	Rate func(now time.Time) float64
	// Seed makes the arrivals of two runs the same.
	Seed uint64
	// MaxOpen bounds the requests under way; 0 = 1024.
	MaxOpen int
	// Send sends one request, due at a moment that may have just passed.
	Send func(ctx context.Context, due time.Time)
	// Refuse is called for a request that is not sent since too many are under
	// way.
	Refuse func(due time.Time)
}

const (
	defaultMaxOpen = 1024
	idlePoll       = 50 * time.Millisecond
)

// Run sends until the context ends, and returns when all is answered. The
// requests under way are not cancelled by the context's end.
func (p *Poisson) Run(ctx context.Context) {
	rng := rand.New(rand.NewPCG(p.Seed, 1)) //nolint:gosec // arrivals, no secrets
	maxOpen := p.MaxOpen
	if maxOpen == 0 {
		maxOpen = defaultMaxOpen
	}
	open := make(chan struct{}, maxOpen)
	var wg sync.WaitGroup
	defer wg.Wait()
	requests := context.WithoutCancel(ctx)
	for due := time.Now(); ; {
		rate := p.Rate(due)
		if rate <= 0 {
			due = later(due, time.Now()).Add(idlePoll)
		} else {
			due = due.Add(time.Duration(rng.ExpFloat64() / rate * float64(time.Second)))
		}
		if waitUntil(ctx, due) != nil || ctx.Err() != nil {
			return
		}
		if rate <= 0 {
			continue
		}
		select {
		case open <- struct{}{}:
			wg.Go(func() {
				p.Send(requests, due)
				<-open
			})
		default:
			p.Refuse(due)
		}
	}
}
