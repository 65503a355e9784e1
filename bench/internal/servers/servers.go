// Package servers holds the servers that the benchmark compares. Each serves
// the same fleet in the same process set-up; they differ only in what stands
// between the change and the transport.
package servers

import (
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// Server is one of the servers.
type Server interface {
	// Serve serves until the listener closes.
	Serve(l net.Listener) error
	// Change changes one endpoint of a cluster and has it pushed.
	Change(cluster int) error
	// Counted tells how many load reports came in; 0 from servers of
	// assignments.
	Counted() int64
}

// New makes a server by name.
func New(kind string) (Server, error) {
	switch kind {
	case "isobar":
		return newIsobar(), nil
	case "linear":
		return newLinear()
	case "floor":
		return newFloor()
	case "lrs-isobar":
		return newLoadIsobar(), nil
	case "lrs-decode":
		return newLoadSink(true), nil
	case "lrs-none":
		return newLoadSink(false), nil
	default:
		return nil, fmt.Errorf("no server %q", kind)
	}
}

// Settings of the transport, the same for all.
func transport(more ...grpc.ServerOption) []grpc.ServerOption {
	return append([]grpc.ServerOption{
		grpc.MaxConcurrentStreams(1000),
		grpc.MaxRecvMsgSize(4 << 20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
	}, more...)
}
