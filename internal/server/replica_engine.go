package server

import (
	"context"
	"time"
)

const (
	// engineCompare is how often the leader looks whether the engine lost writes.
	engineCompare = 2 * time.Second
	// engineInspect is how often a replica looks what the engine will run out of.
	engineInspect = 30 * time.Second
)

// watchEngine follows the state of the election engine until ctx ends.
func (r *replicas) watchEngine(ctx context.Context) {
	compare, inspect := time.NewTicker(engineCompare), time.NewTicker(engineInspect)
	defer compare.Stop()
	defer inspect.Stop()
	r.inspectEngine(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-compare.C:
			r.compareEngine(ctx)
		case <-inspect.C:
			r.inspectEngine(ctx)
		}
	}
}

// compareEngine notes that the engine has other writes of operators than this leader made.
// If it has fewer, it was restored from a backup so fast that leadership did not change, and
// [replicas.recall] writes them again. If it has more, they were written while nobody led.
func (r *replicas) compareEngine(ctx context.Context) {
	o := &r.s.operated
	o.mu.Lock()
	known, sequence := o.known, o.sequence
	o.mu.Unlock()
	if !known || r.leading() != nil {
		return
	}
	last, err := r.replica.LastWrite(ctx)
	if err != nil || last == sequence {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = o.known && o.sequence != sequence
}

// inspectEngine keeps what operators are told of the engine.
func (r *replicas) inspectEngine(ctx context.Context) {
	warnings := r.replica.EngineWarnings(ctx)
	r.engineWarnings.Store(&warnings)
}
