package xds

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// What ends a stream by our own decision; statusOf gives each its code.
var (
	errStopped = errors.New("the server is stopping")
	errFull    = errors.New("too many")
	errNothing = errors.New("nothing is published yet")
	errSilent  = errors.New("no request came")
)

// statusOf maps what ended a stream to a gRPC status.
func (s *Server) statusOf(err error) error {
	if err == nil {
		return nil
	}
	refused := func(reason string, code codes.Code) error {
		s.metrics.refused.WithLabelValues(reason).Inc()
		return status.Error(code, fmt.Sprintf("isobar: %v", err))
	}
	switch {
	case errors.Is(err, rpc.ErrMessage):
		return refused(refusedRequest, codes.InvalidArgument)
	case errors.Is(err, errFull):
		return refused(refusedFull, codes.ResourceExhausted)
	case errors.Is(err, errNothing):
		return refused(refusedNoPlan, codes.Unavailable)
	case errors.Is(err, errSilent):
		return refused(refusedSilent, codes.DeadlineExceeded)
	case errors.Is(err, errStopped):
		return status.Error(codes.Unavailable, "isobar: the server is stopping")
	default:
		return err // a status of gRPC already, or the end of the context
	}
}
