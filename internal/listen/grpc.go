package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/rpc"
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

// newGRPC builds a gRPC server with the services, or with those of 2017.
func (g *Gate) newGRPC(services Services, only2017 bool) *grpc.Server {
	single := map[string]bool{} // methods
	options := []grpc.ServerOption{
		grpc.InTapHandle(g.tapRequests(&single)),
		grpc.ForceServerCodecV2(rpc.ServerCodec()),
		grpc.MaxConcurrentStreams(maxStreamsPerConnection),
		grpc.MaxRecvMsgSize(maxReceive),
		grpc.MaxHeaderListSize(maxHeaderList),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: clientPingsAtMost, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.ChainStreamInterceptor(g.guardStream, g.enterStream),
		grpc.ChainUnaryInterceptor(g.guardUnary, g.enterUnary),
	}
	if g.xds != nil {
		options = append(options, grpc.ReadBufferSize(readBufferTLS))
	}
	options = append(options, grpc.Creds(g.transportCredentials()))
	server := grpc.NewServer(options...)
	services.Register(server, only2017)
	single = singleMethods(server)
	return server
}

// guardStream turns a panic in a handler into the end of that one stream.
func (g *entrance) guardStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
	if err := plainResponses(ss.Context()); err != nil {
		return err
	}
	defer g.panics.Recovered(&err, g.log, "method", info.FullMethod)
	return h(srv, ss)
}

// guardUnary does the same for single requests.
func (g *entrance) guardUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (resp any, err error) {
	if err := plainResponses(ctx); err != nil {
		return nil, err
	}
	defer g.panics.Recovered(&err, g.log, "method", info.FullMethod)
	return h(ctx, req)
}

// plainResponses keeps gRPC from compressing responses to clients that compress
// their requests: responses are encoded once for all streams.
func plainResponses(ctx context.Context) error {
	return grpc.SetSendCompressor(ctx, encoding.Identity)
}

// Bounds of single requests. gRPC reads the message of one before it asks anyone
// whether the client may come in, and waits for it without end: each that was
// begun and left took 11 KB, a thousand on each connection, and none paid for it.
const (
	requestTime  = 30 * time.Second // from its headers to its answer
	peerRequests = 1000             // of one address, under way at once
)

// peerOperations is how many streams one peer may have open of the services for operators. Unlike
// discovery, these make an answer for each message, and a tool needs one stream: thousands of
// them that do not read took a gigabyte.
const peerOperations = 100

// request is a single request on its way.
type request struct {
	booked  *admission.Stream
	arrived atomic.Bool // its message did
}

type requestKey struct{}

// tapRequests bounds single requests from their headers on; of all streams it notes
// what is unread. The methods are those of g, once it serves.
func (g *entrance) tapRequests(single *map[string]bool) tap.ServerInHandle {
	return func(ctx context.Context, info *tap.Info) (context.Context, error) {
		ctx = admission.WithUnread(ctx)
		if u := admission.UnreadOf(ctx); u != nil {
			ctx = rpc.WithUnread(ctx, u)
		}
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
		booked, refused := g.requests.Open(account, admission.Operation)
		if refused != "" {
			return g.refuseRequest(ctx, refused, address)
		}
		r := &request{booked: booked}
		ctx, cancel := context.WithTimeout(context.WithValue(ctx, requestKey{}, r), requestTime)
		context.AfterFunc(ctx, func() {
			cancel()
			r.booked.Close()
			if !r.arrived.Load() && status.FromContextError(ctx.Err()).Code() == codes.DeadlineExceeded {
				_ = g.turnAway(admission.NoMessage, address, "") // gRPC has told the client
			}
		})
		return ctx, nil
	}
}

// refuseRequest refuses a request before it takes a goroutine. Of one that has a
// deadline of its own, which may be years away, gRPC would not stop the timer
// then: that one is let go on, and its time ended at once.
func (g *entrance) refuseRequest(ctx context.Context, why admission.Reason, address string) (context.Context, error) {
	err := advised(g.turnAway(why, address, ""), func(metadata.MD) {})
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

// NewServers builds the gRPC server of each listener: as many as are to be stopped
// one by one. The tracker may be nil.
func (g *Gate) NewServers(ls Listeners, services Services, tracker Tracker) *Servers {
	s := &Servers{services: services, log: g.log, listeners: ls.grpc()}
	for _, l := range s.listeners {
		for _, turn := range takeTurns(l, stopShards) {
			turn.track = tracker
			s.shards = append(s.shards, shard{g.newGRPC(services, l == ls.XDS2017), turn})
		}
	}
	return s
}

// Listeners are where the server listens. Servers close them.
type Listeners struct {
	XDS     net.Listener // required
	XDS2017 net.Listener // for clients of 2017 alone; nil = none
	REST    net.Listener // for clients that poll over HTTP; nil = none
	Admin   net.Listener // nil = no admin interface
	// Replicas is for the other replicas of the group; required where the
	// configuration names one.
	Replicas net.Listener
}

// All opens the listeners that a configuration names.
func All(ctx context.Context, cfg *config.Fixed) (Listeners, error) {
	var lc net.ListenConfig
	var out Listeners
	for _, l := range []struct {
		field, address string
		into           *net.Listener
	}{
		{"xds.listen", cfg.XDS.Listen, &out.XDS},
		{"xds.listen_2017", cfg.XDS.Listen2017, &out.XDS2017},
		{"xds.listen_rest", cfg.XDS.ListenREST, &out.REST},
		{"admin.listen", cfg.Admin.Listen, &out.Admin},
		{"replicas.listen", cfg.Replicas.Address(), &out.Replicas},
	} {
		if l.address == "" {
			continue
		}
		opened, err := lc.Listen(ctx, "tcp", l.address)
		if err != nil {
			return Listeners{}, errors.Join(fmt.Errorf("%s: %w", l.field, err), out.Close())
		}
		*l.into = opened
	}
	return out, nil
}

// grpc lists the listeners of gRPC clients.
func (l Listeners) grpc() []net.Listener {
	if l.XDS2017 == nil {
		return []net.Listener{l.XDS}
	}
	return []net.Listener{l.XDS, l.XDS2017}
}

// Close closes the listeners, for callers that could not start a server.
func (l Listeners) Close() error {
	var err error
	for _, x := range []net.Listener{l.XDS, l.XDS2017, l.REST, l.Admin, l.Replicas} {
		if x != nil {
			err = errors.Join(err, x.Close())
		}
	}
	return err
}
