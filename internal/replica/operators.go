package replica

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

// operatorPatience bounds one read or write of what operators wrote.
const operatorPatience = 3 * time.Second

// errNoOperators says that the engine keeps nothing for operators.
var errNoOperators = errors.New("the election engine keeps nothing for operators")

// ReadOperators returns what operators wrote, as the engine has it.
func (r *Replica) ReadOperators(ctx context.Context) (engine.Written, error) {
	e, ok := r.engine.(engine.Operators)
	if !ok {
		return engine.Written{}, errNoOperators
	}
	ctx, cancel := context.WithTimeout(ctx, operatorPatience)
	defer cancel()
	return e.ReadOperators(ctx)
}

// LastWrite returns the number of the last write of operators that the engine has.
func (r *Replica) LastWrite(ctx context.Context) (uint64, error) {
	e, ok := r.engine.(engine.Operators)
	if !ok {
		return 0, errNoOperators
	}
	ctx, cancel := context.WithTimeout(ctx, operatorPatience)
	defer cancel()
	return e.LastWrite(ctx)
}

// EngineWarnings returns what the engine will run out of; nil = nothing.
func (r *Replica) EngineWarnings(ctx context.Context) []string {
	if e, ok := r.engine.(engine.Inspector); ok {
		return e.Warnings(ctx)
	}
	return nil
}

// WriteOperators makes all changes of operators durable, or none, while this replica
// leads; see [engine.Operators]. Whether it leads is decided by the engine.
func (r *Replica) WriteOperators(ctx context.Context, previous, next uint64, changes []engine.Change) error {
	e, ok := r.engine.(engine.Operators)
	if !ok {
		return errNoOperators
	}
	r.mu.Lock()
	role, claim := r.node.Role(), r.node.Claim()
	r.mu.Unlock()
	if role != group.Leading || claim.IsZero() {
		return engine.ErrNotLeading
	}
	return r.writeOperators(ctx, e, claim, previous, next, changes)
}

// ForceOperators makes all changes of operators durable, or none, while no replica leads;
// the engine decides whether one does. previous is the number of the last write.
func (r *Replica) ForceOperators(ctx context.Context, previous uint64, changes []engine.Change) error {
	e, ok := r.engine.(engine.Operators)
	if !ok {
		return errNoOperators
	}
	return r.writeOperators(ctx, e, group.Claim{}, previous, previous+1, changes)
}

func (r *Replica) writeOperators(ctx context.Context, e engine.Operators, claim group.Claim, previous, next uint64, changes []engine.Change) error {
	ctx, cancel := context.WithTimeout(ctx, operatorPatience)
	defer cancel()
	err := e.WriteOperators(ctx, claim, previous, next, changes)
	refusals := []error{engine.ErrStale, engine.ErrNotLeading, engine.ErrLed, engine.ErrTooLarge}
	if err != nil && !slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) }) {
		r.metrics.engineErrors.Inc()
	}
	return err
}

// Alarm shows operators what the group found. It stays among the last alarms.
func (r *Replica) Alarm(text string) {
	r.log.Error("the group of replicas needs attention", "alarm", text)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alarm(text)
}
