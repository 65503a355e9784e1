package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// operatorPatience bounds one read or write of operators' state, which takes many requests if
// there is much of it. An engine that does not answer one of them ends it after
// [engine.RequestPatience].
const operatorPatience = time.Minute

// errNoOperators says that the engine keeps nothing for operators.
var errNoOperators = errors.New("the election engine keeps nothing for operators")

// ReadOperators returns the operators' writes, as the engine has them.
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

// EngineWarnings returns the engine's resources that will run out; nil = none.
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
	err := r.writeOperators(ctx, e, group.Claim{}, previous, previous+1, changes)
	if s := r.Status(); errors.Is(err, engine.ErrLed) && s.Awaits != "" {
		return fmt.Errorf("%w as the election engine says: %s", err, s.Awaits)
	}
	return err
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

// Alarm shows operators a state of the group until EndAlarm, or until another alarm of the same.
func (r *Replica) Alarm(of, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alarm(of, text)
}

// EndAlarm notes that the state behind an alarm is over, if there was one.
func (r *Replica) EndAlarm(of string) { r.Alarm(of, "") }

// AlarmOnce shows operators an event that happened once. It stays among the last alarms.
func (r *Replica) AlarmOnce(text string) { r.Alarm(text, text) }

// Order is a request of the admin API that the leader has to carry out.
type Order struct {
	Method, Path string
	Body         []byte // JSON or YAML, at most maxOrderBytes
	Remote       string // the address that it came from
	IfMatch      string // the header of this name; "" = none
}

// Answer is the answer of the admin API.
type Answer struct {
	Status int    // of HTTP
	Body   []byte // JSON
}

const (
	// maxOrderBytes leaves space in a message for the rest of an order.
	maxOrderBytes = maxMessage - 64<<10
	// orderPatience bounds how long the leader may take to answer.
	orderPatience = 30 * time.Second
)

// Order brings an order to the leader. It reports false where this replica leads itself,
// or knows of no leader: the caller carries the order out, or refuses it.
func (r *Replica) Order(ctx context.Context, o Order) (a Answer, forwarded bool, err error) {
	r.mu.Lock()
	leader := r.node.Leader(r.clock())
	r.mu.Unlock()
	l := r.peers[leader]
	if l == nil {
		return Answer{}, false, nil
	}
	l.mu.Lock()
	client := l.client
	l.mu.Unlock()
	if client == nil {
		return Answer{}, false, nil
	}
	if len(o.Body) > maxOrderBytes {
		return Answer{}, true, fmt.Errorf("replica %s leads the group, and a write of more than %d KiB is not passed on: send it to %s itself",
			leader, maxOrderBytes>>10, leader)
	}
	ctx, cancel := context.WithTimeout(ctx, orderPatience)
	defer cancel()
	out, err := client.Order(ctx, &peerv1.OrderRequest{Hello: r.hello(), Method: o.Method, Path: o.Path, Body: o.Body, Remote: o.Remote, IfMatch: o.IfMatch})
	if err != nil {
		return Answer{}, true, fmt.Errorf("replica %s leads the group and did not answer; whether it carried the write out is unknown: %w", leader, err)
	}
	return Answer{Status: int(out.GetStatus()), Body: out.GetBody()}, true, nil
}

// Order implements [peerv1.PeerServiceServer].
func (x *exchange) Order(ctx context.Context, m *peerv1.OrderRequest) (*peerv1.OrderResponse, error) {
	in, err := x.greet(ctx, m.GetHello())
	if err != nil {
		if x.reject("write", err) {
			x.r.log.Warn("rejected a forwarded write", "error", err)
		}
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	if x.r.opts.Ordered == nil || len(m.GetBody()) > maxOrderBytes {
		return nil, status.Error(codes.InvalidArgument, "the write is too large, or nobody takes it")
	}
	x.r.log.Info("received a forwarded write", "from", in.from.Name, "method", m.GetMethod(), "path", bounded(m.GetPath()))
	a := x.r.opts.Ordered(ctx, Order{
		Method: m.GetMethod(), Path: m.GetPath(), Body: m.GetBody(), Remote: bounded(m.GetRemote()), IfMatch: bounded(m.GetIfMatch()),
	})
	return &peerv1.OrderResponse{Status: uint32(max(0, a.Status)), Body: a.Body}, nil //nolint:gosec // of HTTP
}

// Reporting asks another replica how many load report streams of each node it has that belong
// to no client there. Versions before this question answer with an error.
func (r *Replica) Reporting(ctx context.Context, name string, nodes []*peerv1.Node) ([]uint32, error) {
	l := r.peers[name]
	if l == nil {
		return nil, fmt.Errorf("replica %s: %w", name, errNotConnected)
	}
	out, err := l.reporting(ctx, nodes)
	if err != nil {
		return nil, fmt.Errorf("replica %s: %w", name, err)
	}
	return out, nil
}
