// Package eds is the service of endpoints alone, for fleets that have another
// control plane for everything else.
package eds

import (
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar/internal/wire"
)

// Streams serves streams of resources; only is the one type URL of the stream.
type Streams interface {
	Serve(stream grpc.ServerStream, only string) error
	ServeDelta(stream grpc.ServerStream, only string) error
}

// Register adds the service.
func Register(r grpc.ServiceRegistrar, s Streams) {
	endpointservice.RegisterEndpointDiscoveryServiceServer(r, endpoints{streams: s})
}

type endpoints struct {
	endpointservice.UnimplementedEndpointDiscoveryServiceServer

	streams Streams
}

func (e endpoints) StreamEndpoints(s endpointservice.EndpointDiscoveryService_StreamEndpointsServer) error {
	return e.streams.Serve(s, wire.EndpointsURL)
}

func (e endpoints) DeltaEndpoints(s endpointservice.EndpointDiscoveryService_DeltaEndpointsServer) error {
	return e.streams.ServeDelta(s, wire.EndpointsURL)
}
