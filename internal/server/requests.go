package server

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/isobar-xds/isobar/internal/admission"
)

// Bounds of single requests. gRPC reads the message of one before it asks anyone
// whether the client may come in, and waits for it without end: each that was
// begun and left took 11 KB, a thousand on each connection, and none paid for it.
const (
	requestTime  = 30 * time.Second // from its headers to its answer
	peerRequests = 1000             // of one address, under way at once
)

// request is a single request on its way.
type request struct {
	booked  *admission.Stream
	arrived atomic.Bool // its message did
}

type requestKey struct{}

// tapRequests bounds single requests from their headers on; of all streams it notes
// what is unread. The methods are those of g, once it serves.
func (s *Server) tapRequests(single *map[string]bool) tap.ServerInHandle {
	return func(ctx context.Context, info *tap.Info) (context.Context, error) {
		ctx = admission.WithUnread(ctx)
		if !(*single)[info.FullMethodName] {
			return ctx, nil
		}
		address := "local"
		if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
			address = admission.Address(p.Addr)
		}
		account := address
		if info.FullMethodName == healthpb.Health_Check_FullMethodName {
			account = "health " + address // others' requests keep no health check out
		}
		booked, refused := s.security.requests.Open(account, admission.Operation)
		if refused != "" {
			return s.refuseRequest(ctx, refused, address)
		}
		r := &request{booked: booked}
		ctx, cancel := context.WithTimeout(context.WithValue(ctx, requestKey{}, r), requestTime)
		context.AfterFunc(ctx, func() {
			cancel()
			r.booked.Close()
			if !r.arrived.Load() && status.FromContextError(ctx.Err()).Code() == codes.DeadlineExceeded {
				_ = s.turnAway(admission.NoMessage, address, "") // gRPC has told the client
			}
		})
		return ctx, nil
	}
}

// refuseRequest refuses a request before it takes a goroutine. Of one that has a
// deadline of its own, which may be years away, gRPC would not stop the timer
// then: that one is let go on, and its time ended at once.
func (s *Server) refuseRequest(ctx context.Context, why admission.Reason, address string) (context.Context, error) {
	err := advised(s.turnAway(why, address, ""), func(metadata.MD) {})
	if _, ok := ctx.Deadline(); !ok {
		return ctx, err
	}
	ctx, cancel := context.WithTimeout(ctx, refusedRequestTime)
	context.AfterFunc(ctx, cancel)
	return ctx, nil
}

const refusedRequestTime = 10 * time.Millisecond

// arrived notes that the message of a request is there.
func arrived(ctx context.Context) {
	admission.UnreadOf(ctx).Taken()
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		r.arrived.Store(true)
	}
}

// singleMethods lists the methods that take one message and give one.
func singleMethods(g *grpc.Server) map[string]bool {
	out := map[string]bool{}
	for service, info := range g.GetServiceInfo() {
		for _, m := range info.Methods {
			if !m.IsClientStream && !m.IsServerStream {
				out["/"+service+"/"+m.Name] = true
			}
		}
	}
	return out
}
