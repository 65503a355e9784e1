package replica

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

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
	// maxOrderBytes leaves room in a message for the rest of an order.
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
		x.r.metrics.rejected.Inc()
		x.r.log.Warn("rejected a forwarded write", "error", err)
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
