// Package eds is the service of endpoints alone, for fleets that have another
// control plane for everything else.
package eds

import (
	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar/internal/wire"
	"github.com/isobar-xds/isobar/internal/xds"
)

// Register adds the service in all forms, with the methods beside its own that
// it had in 2017: load reports were one. On a listener that is for clients of
// 2017 alone, say so: there the methods of v2 are those of 2017.
func Register(r grpc.ServiceRegistrar, s xds.Streams, only2017 bool, more2017 ...grpc.StreamDesc) {
	const noun = "Endpoints"
	form := wire.V2
	if only2017 {
		form = wire.V2017
	} else {
		r.RegisterService(xds.Desc(s, "envoy.service.endpoint.v3.EndpointDiscoveryService", "envoy/service/endpoint/v3/eds.proto", noun,
			xds.Method{Only: wire.EndpointsURL, Form: wire.V3}, true), s)
	}
	old := xds.Desc(s, "envoy.api.v2.EndpointDiscoveryService", "envoy/api/v2/eds.proto", noun,
		xds.Method{Only: wire.EndpointsURLv2, Form: form}, !only2017)
	old.Streams = append(old.Streams, more2017...)
	r.RegisterService(old, s)
}
