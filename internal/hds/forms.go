package hds

import (
	"context"

	discoveryv2 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v2"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// service2017 is the name of the service in the form of 2017. Its messages are
// those of v2 with fewer fields.
const service2017 = "envoy.api.v2.HealthDiscoveryService"

const (
	streamMethod = "StreamHealthCheck"
	fetchMethod  = "FetchHealthCheck"
)

// Register makes r serve health discovery in all its forms. The gRPC server
// must have been made with [rpc.ServerCodec]: the first message of old
// checkers can be read from its bytes only.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	of2017 := discoveryv2.HealthDiscoveryService_ServiceDesc
	of2017.ServiceName = service2017
	for _, d := range []struct {
		service grpc.ServiceDesc
		form    rpc.Form
	}{
		{healthv3.HealthDiscoveryService_ServiceDesc, rpc.V3},
		{discoveryv2.HealthDiscoveryService_ServiceDesc, rpc.V2},
		{of2017, rpc.V2017},
	} {
		d.service.HandlerType = (*any)(nil)
		d.service.Streams = []grpc.StreamDesc{{
			StreamName: streamMethod, ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, g grpc.ServerStream) error { return s.stream(g, d.form) },
		}}
		d.service.Methods = []grpc.MethodDesc{{
			MethodName: fetchMethod, Handler: s.fetcher("/"+d.service.ServiceName+"/"+fetchMethod, d.form),
		}}
		r.RegisterService(&d.service, s)
	}
}

// fetcher serves single requests. All forms are read with the types of v3:
// some Envoys report in a way of v3 on services of v2.
func (s *Server) fetcher(name string, form rpc.Form) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		in := &healthv3.HealthCheckRequestOrEndpointHealthResponse{}
		if err := decode(in); err != nil {
			return nil, err
		}
		handle := func(ctx context.Context, in any) (any, error) {
			return s.fetchOne(ctx, in.(*healthv3.HealthCheckRequestOrEndpointHealthResponse), form) //nolint:forcetypeassert // it is the one above
		}
		if intercept == nil {
			return handle(ctx, in)
		}
		return intercept(ctx, in, &grpc.UnaryServerInfo{Server: s, FullMethod: name}, handle)
	}
}
