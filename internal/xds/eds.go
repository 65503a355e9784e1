package xds

import (
	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// RegisterEDS adds the service of endpoints alone, for fleets that have another control
// plane for everything else, in all forms: with the methods beside its own that
// it had in 2017: load reports were one. On a listener that is for clients of
// 2017 alone, say so: there the methods of v2 are those of 2017.
func RegisterEDS(r grpc.ServiceRegistrar, s Streams, only2017 bool, more2017 ...grpc.StreamDesc) {
	const noun = "Endpoints"
	form := rpc.V2
	if only2017 {
		form = rpc.V2017
	} else {
		r.RegisterService(Desc(s, "envoy.service.endpoint.v3.EndpointDiscoveryService", "envoy/service/endpoint/v3/eds.proto", noun,
			Method{Only: resource.EndpointsURL, Form: rpc.V3}, true), s)
	}
	old := Desc(s, "envoy.api.v2.EndpointDiscoveryService", "envoy/api/v2/eds.proto", noun,
		Method{Only: resource.EndpointsURLv2, Form: form}, !only2017)
	old.Streams = append(old.Streams, more2017...)
	r.RegisterService(old, s)
}
