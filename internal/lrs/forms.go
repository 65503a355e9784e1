package lrs

import (
	loadstatsv2 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v2"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// streamName is the one method of load reporting, in every form.
const streamName = "StreamLoadStats"

// Register makes r serve load reporting as v3 and as v2; the messages of both
// are the same on the wire. The 2017 form has no service of its own, see
// [Server.Stream2017].
func (s *Server) Register(r grpc.ServiceRegistrar) {
	for _, d := range []struct {
		service grpc.ServiceDesc
		form    rpc.Form
	}{
		{loadstatsv3.LoadReportingService_ServiceDesc, rpc.V3},
		{loadstatsv2.LoadReportingService_ServiceDesc, rpc.V2},
	} {
		d.service.HandlerType = (*any)(nil)
		d.service.Streams = []grpc.StreamDesc{s.method(d.form)}
		r.RegisterService(&d.service, s)
	}
}

// Stream2017 is load reporting as it was in 2017: a method of
// envoy.api.v2.EndpointDiscoveryService, so whoever registers that service has
// to add it. It takes whatever server the service is registered with.
func (s *Server) Stream2017() grpc.StreamDesc { return s.method(rpc.V2017) }

func (s *Server) method(form rpc.Form) grpc.StreamDesc {
	return grpc.StreamDesc{
		StreamName: streamName, ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, g grpc.ServerStream) error { return s.stream(g, form) },
	}
}
