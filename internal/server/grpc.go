package server

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds"
)

// Limits of a connection.
const (
	maxStreamsPerConnection = 1000
	maxReceive              = 4 << 20
	maxHeaderList           = 16 << 10
	handshakeTimeout        = 20 * time.Second
	pingAfter               = 30 * time.Second // of silence: finds half-open connections
	pingTimeout             = 20 * time.Second
	clientPingsAtMost       = 10 * time.Second

	// Windows that do not grow: gRPC else lets a stream that is read slowly keep
	// up to 16 MiB. It still opens them for the rest of a message that is read.
	streamWindow     = 64 << 10
	connectionWindow = 1 << 20

	// readBufferTLS is what gRPC reads into. A connection without TLS needs none
	// while it is silent, but from one with TLS gRPC borrows none: and TLS has the
	// whole record in a buffer of its own already.
	readBufferTLS = 4 << 10
)

// newGRPC builds a gRPC server with all services on it, or with those of 2017.
func (s *Server) newGRPC(only2017 bool) *grpc.Server {
	single := map[string]bool{} // methods
	options := []grpc.ServerOption{
		grpc.InTapHandle(s.tapRequests(&single)),
		grpc.ForceServerCodecV2(rpc.ServerCodec()),
		grpc.MaxConcurrentStreams(maxStreamsPerConnection),
		grpc.MaxRecvMsgSize(maxReceive),
		grpc.MaxHeaderListSize(maxHeaderList),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: clientPingsAtMost, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.ChainStreamInterceptor(s.guardStream, s.enterStream),
		grpc.ChainUnaryInterceptor(s.guardUnary, s.enterUnary),
	}
	if s.security.xds != nil {
		options = append(options, grpc.ReadBufferSize(readBufferTLS))
	}
	options = append(options, grpc.Creds(s.transportCredentials()))
	g := grpc.NewServer(options...)
	xds.Register(g, s.xds, only2017)
	xds.RegisterEDS(g, s.xds, only2017, s.lrs.Stream2017())
	s.lrs.Register(g)
	s.hds.Register(g)
	s.registerOperational(g)
	single = singleMethods(g)
	return g
}

// guardStream turns a panic in a handler into the end of that one stream.
func (s *Server) guardStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
	if err := plainResponses(ss.Context()); err != nil {
		return err
	}
	defer s.panics.Recovered(&err, s.log, "method", info.FullMethod)
	return h(srv, ss)
}

// guardUnary does the same for single requests.
func (s *Server) guardUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (resp any, err error) {
	if err := plainResponses(ctx); err != nil {
		return nil, err
	}
	defer s.panics.Recovered(&err, s.log, "method", info.FullMethod)
	return h(ctx, req)
}

// plainResponses keeps gRPC from compressing responses to clients that compress
// their requests: responses are encoded once for all streams.
func plainResponses(ctx context.Context) error {
	return grpc.SetSendCompressor(ctx, encoding.Identity)
}
