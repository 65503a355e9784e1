package resource_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

func additional(endpoints ...*endpointv3.LbEndpoint) []*endpointv3.Endpoint_AdditionalAddress {
	var out []*endpointv3.Endpoint_AdditionalAddress
	for _, e := range endpoints {
		out = append(out, &endpointv3.Endpoint_AdditionalAddress{Address: e.GetEndpoint().GetAddress()})
	}
	return out
}

func filterMetadata(name, key string, v any) *corev3.Metadata {
	s, err := structpb.NewStruct(map[string]any{key: v})
	if err != nil {
		panic(err)
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{name: s}}
}

// What another control plane says of an endpoint is kept.
func TestListedDetails(t *testing.T) {
	e := listedEndpoint("10.0.0.1", 80)
	e.Metadata = filterMetadata("envoy.lb", "version", "canary")
	e.GetEndpoint().Hostname = "one.example"
	e.GetEndpoint().AdditionalAddresses = additional(listedEndpoint("2001:db8::1", 80), listedEndpoint("named.example", 80))
	got, err := resource.ReadListing(listedAssignment(e, listedEndpoint("10.0.0.2", 80)), isobar.Locality{})
	if err != nil {
		t.Fatal(err)
	}
	want := &isobar.EndpointDetails{
		Hostname: "one.example", AdditionalAddresses: []string{"[2001:db8::1]:80"}, Metadata: `{"envoy.lb":{"version":"canary"}}`,
	}
	endpoints := got.Localities[0].Endpoints
	if !reflect.DeepEqual(endpoints[0].Details, want) || endpoints[1].Details != nil {
		t.Errorf("got %+v and %+v, want %+v and none", endpoints[0].Details, endpoints[1].Details, want)
	}
}

func TestListedDetailsRefused(t *testing.T) {
	for says, change := range map[string]func(*endpointv3.LbEndpoint){
		"endpoint.hostname": func(e *endpointv3.LbEndpoint) { e.GetEndpoint().Hostname = "a b" },
		"lb_endpoints[0].metadata: bad metadata": func(e *endpointv3.LbEndpoint) {
			e.Metadata = filterMetadata("a", "x", strings.Repeat("y", isobar.MaxMetadata))
		},
		"additional_addresses[0]: 10.0.0.1:80 stands at endpoints[0].lb_endpoints[0]": func(e *endpointv3.LbEndpoint) {
			e.GetEndpoint().AdditionalAddresses = additional(e)
		},
		"additional_addresses[0]: \"0.0.0.0\"": func(e *endpointv3.LbEndpoint) {
			e.GetEndpoint().AdditionalAddresses = additional(listedEndpoint("0.0.0.0", 80))
		},
		"more than 16 addresses": func(e *endpointv3.LbEndpoint) {
			for port := range uint32(17) {
				e.GetEndpoint().AdditionalAddresses = append(e.GetEndpoint().AdditionalAddresses, additional(listedEndpoint("10.1.0.1", port+1))...)
			}
		},
	} {
		e := listedEndpoint("10.0.0.1", 80)
		change(e)
		_, err := resource.ReadListing(listedAssignment(e), isobar.Locality{})
		if !errors.Is(err, rpc.ErrMessage) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}
