package sim

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// Compare runs policies side by side, each in a fleet of its own, as many at a
// time as there are processors. The results are in the order of the policies.
// progress, where it is not nil, is told now and then how much is done, 0 to 1,
// by one caller at a time.
func Compare(ctx context.Context, sc *Scenario, policies []Policy, progress func(done float64)) ([]*Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results := make([]*Result, len(policies))
	p := progressMeter{tell: progress}
	for i := range policies {
		p.all += float64(len(policies[i].make)) * float64(sc.Length)
	}
	var next atomic.Int64
	var wait sync.WaitGroup
	for range min(len(policies), runtime.GOMAXPROCS(0)) {
		wait.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(policies) || ctx.Err() != nil {
					return
				}
				r, err := p.run(ctx, sc, policies[i])
				if err != nil {
					cancel(err)
					return
				}
				results[i] = r
			}
		})
	}
	wait.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return results, nil
}

// progressMeter adds up what all runs have done.
type progressMeter struct {
	tell func(done float64)
	all  float64

	mu   sync.Mutex
	done float64 // guarded by mu
}

func (p *progressMeter) run(ctx context.Context, sc *Scenario, policy Policy) (*Result, error) {
	if p.tell == nil {
		return Run(ctx, sc, policy, nil)
	}
	return Run(ctx, sc, policy, func(Frame) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.done += float64(sc.Tick)
		p.tell(min(1, p.done/p.all))
		return nil
	})
}
