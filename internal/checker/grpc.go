package checker

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// grpcCheck is what all gRPC probes of a check share.
type grpcCheck struct {
	link      link
	request   *healthpb.HealthCheckRequest
	authority string
	metadata  metadata.MD
	creds     credentials.TransportCredentials
}

func newGRPC(m *corev3.HealthCheck_GrpcHealthCheck, l link) (func(Target) (Prober, error), error) {
	c := &grpcCheck{
		link: l, authority: m.GetAuthority(), metadata: metadata.MD{},
		request: &healthpb.HealthCheckRequest{Service: m.GetServiceName()},
		creds:   insecure.NewCredentials(),
	}
	added, err := addedHeaders(m.GetInitialMetadata())
	if err != nil {
		return nil, fmt.Errorf("grpc_health_check.initial_metadata: %w", err)
	}
	for _, h := range added {
		name := strings.ToLower(h.name)
		if strings.HasPrefix(name, "grpc-") {
			return nil, fmt.Errorf("grpc_health_check.initial_metadata: %s is reserved", short(name))
		}
		c.metadata.Append(name, h.value)
	}
	if l.tls != nil {
		c.creds = credentials.NewTLS(l.tls.config)
	}
	return func(t Target) (Prober, error) { return &grpcProber{check: c, target: t}, nil }, nil
}

// grpcProber probes one endpoint with grpc.health.v1.Health/Check.
type grpcProber struct {
	check  *grpcCheck
	target Target
	conn   *grpc.ClientConn
	dialed atomic.Pointer[error] // the last error of dialling, which gRPC hands on as text only
}

// Probe asks; a connection that failed is made again for the next probe, so
// that gRPC's own back-off never stands between a probe and its endpoint.
func (p *grpcProber) Probe(ctx context.Context) (Outcome, error) {
	if p.conn == nil {
		p.dialed.Store(nil)
		conn, err := p.connect()
		if err != nil {
			return Broken, err
		}
		p.conn = conn
	}
	outcome, err := p.ask(ctx)
	if !p.check.link.reuse || outcome.lostConnection() {
		p.Close()
	}
	return outcome, err
}

func (p *grpcProber) ask(ctx context.Context) (Outcome, error) {
	resp, err := healthpb.NewHealthClient(p.conn).Check(metadata.NewOutgoingContext(ctx, p.check.metadata), p.check.request)
	switch status.Code(err) {
	case codes.OK:
		if resp.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			return Passed, nil
		}
		return Failed, fmt.Errorf("status %s", resp.GetStatus())
	case codes.DeadlineExceeded:
		return TimedOut, err
	case codes.Unavailable, codes.Canceled:
		if dialed := p.dialed.Load(); dialed != nil {
			err = *dialed
		}
		return lost(ctx, err)
	default:
		return Failed, err
	}
}

func (p *grpcProber) connect() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+p.target.Address,
		grpc.WithTransportCredentials(p.check.creds),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := p.check.link.dial(ctx, p.target.Network, p.target.Address)
			if err != nil {
				p.dialed.Store(&err)
			}
			return conn, err
		}),
		grpc.WithAuthority(p.target.authority(p.check.authority)),
		grpc.WithUserAgent("Isobar/HC"),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0), // the connection is kept for the next probe
		grpc.WithReadBufferSize(2<<10),
		grpc.WithWriteBufferSize(2<<10),
		grpc.WithMaxHeaderListSize(64<<10),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<10)),
	)
}

// Close lets go of the connection.
func (p *grpcProber) Close() {
	if p.conn != nil {
		_ = p.conn.Close() // fails only when closed before
		p.conn = nil
	}
}
