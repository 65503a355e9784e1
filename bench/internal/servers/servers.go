// Package servers holds the servers that the benchmark compares. Each serves
// the same fleet in the same process set-up; they differ only in what stands
// between the change and the transport.
package servers

import (
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/isobar-xds/isobar/bench/internal/fleet"
	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// Server is one of the servers.
type Server interface {
	// Serve serves until the listener closes.
	Serve(l net.Listener) error
	// Change changes one endpoint of a cluster and has it pushed.
	Change(cluster int) error
	// Counted returns how many load reports came in; 0 from servers of
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
		return newFloor(fleet.Endpoints)
	case "floor-small":
		return newFloor(fleet.Few)
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

// transport has the settings that are the same for all.
func transport(more ...grpc.ServerOption) []grpc.ServerOption {
	return append([]grpc.ServerOption{
		grpc.MaxConcurrentStreams(1000),
		grpc.MaxRecvMsgSize(4 << 20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
	}, more...)
}

// guarded adds what Isobar's server has besides: messages that are not whole are
// counted, and windows do not grow.
func guarded(more ...grpc.ServerOption) []grpc.ServerOption {
	messages := admission.NewMessages(512<<20, admission.NewMetrics(nil), func(net.Addr, int64) {})
	return transport(append([]grpc.ServerOption{
		grpc.ForceServerCodecV2(rpc.ServerCodec()),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.StaticStreamWindowSize(64 << 10),
		grpc.StaticConnWindowSize(1 << 20),
		grpc.Creds(messages.Over(insecure.NewCredentials())),
	}, more...)...)
}
