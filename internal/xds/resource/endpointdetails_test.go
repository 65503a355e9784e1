package resource_test

import (
	"errors"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// detailed returns an assignment of one endpoint.
func detailed(e *isobar.Endpoint, more ...isobar.WeightedEndpoint) *isobar.Assignment {
	g := group("r/z", "10.0.0.1:80")
	g.Endpoints[0].Config = e
	g.Endpoints = append(g.Endpoints, more...)
	return &isobar.Assignment{Service: "s", Priorities: [][]isobar.LocalityWeight{{{EndpointGroup: g, Weight: 1}}}}
}

func TestEndpointDetails(t *testing.T) {
	for name, tt := range map[string]struct {
		e    isobar.Endpoint
		want string // endpoint and metadata, beside the address
	}{
		"nothing":  {isobar.Endpoint{}, `{"endpoint": {}}`},
		"hostname": {isobar.Endpoint{Details: &isobar.EndpointDetails{Hostname: "a.example:8443"}}, `{"endpoint": {"hostname": "a.example:8443"}}`},
		"addresses": {
			isobar.Endpoint{Details: &isobar.EndpointDetails{AdditionalAddresses: []string{"[2001:db8::1]:81", "10.0.0.2:82"}}},
			`{"endpoint": {"additionalAddresses": [
				{"address": {"socketAddress": {"address": "2001:db8::1", "portValue": 81}}},
				{"address": {"socketAddress": {"address": "10.0.0.2", "portValue": 82}}}]}}`,
		},
		"metadata": {
			isobar.Endpoint{Details: &isobar.EndpointDetails{Metadata: `{"a":{},"envoy.lb":{"f":1.5,"l":[1,"x",true,{}],"n":null,"version":"canary"}}`}},
			`{"endpoint": {}, "metadata": {"filterMetadata": {
				"a": {}, "envoy.lb": {"f": 1.5, "l": [1, "x", true, {}], "n": null, "version": "canary"}}}}`,
		},
		"check":             {isobar.Endpoint{Check: &isobar.EndpointCheck{}}, `{"endpoint": {}}`},
		"check elsewhere":   {isobar.Endpoint{Check: &isobar.EndpointCheck{Port: 81, Hostname: "h"}}, `{"endpoint": {"healthCheckConfig": {"portValue": 81, "hostname": "h"}}}`},
		"check not":         {isobar.Endpoint{Check: &isobar.EndpointCheck{Disabled: true}}, `{"endpoint": {"healthCheckConfig": {"disableActiveHealthCheck": true}}}`},
		"check another":     {isobar.Endpoint{Check: &isobar.EndpointCheck{Address: "10.9.9.9"}}, `{"endpoint": {"healthCheckConfig": {"address": {"socketAddress": {"address": "10.9.9.9", "portValue": 80}}}}}`},
		"check another's 9": {isobar.Endpoint{Check: &isobar.EndpointCheck{Address: "::1", Port: 9}}, `{"endpoint": {"healthCheckConfig": {"portValue": 9, "address": {"socketAddress": {"address": "::1", "portValue": 9}}}}}`},
	} {
		m, err := resource.Assignment(detailed(&tt.e))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := &endpointv3.LbEndpoint{}
		if err := protojson.Unmarshal([]byte(tt.want), want); err != nil {
			t.Fatal(err)
		}
		plain, err := resource.Assignment(detailed(nil))
		if err != nil {
			t.Fatal(err)
		}
		proto.Merge(want, plain.GetEndpoints()[0].GetLbEndpoints()[0])
		if got := m.GetEndpoints()[0].GetLbEndpoints()[0]; !proto.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, protojson.Format(got), protojson.Format(want))
		}
		if err := m.ValidateAll(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLocalityMetadata(t *testing.T) {
	a := detailed(nil)
	a.Priorities[0][0].Metadata = `{"envoy.lb":{"tier":1}}`
	m, err := resource.Assignment(a)
	if err != nil {
		t.Fatal(err)
	}
	got := m.GetEndpoints()[0].GetMetadata().GetFilterMetadata()["envoy.lb"].GetFields()["tier"].GetNumberValue()
	if got != 1 {
		t.Errorf("metadata %v", m.GetEndpoints()[0].GetMetadata())
	}
}

func TestEndpointDetailsRefused(t *testing.T) {
	long := strings.Repeat("h", 256)
	for says, d := range map[string]*isobar.EndpointDetails{
		"endpoint.hostname: 256 bytes":                    {Hostname: long},
		"endpoint.hostname: \"a b\" holds blanks":         {Hostname: "a b"},
		`"db.example:80", want an IP address`:             {AdditionalAddresses: []string{"db.example:80"}},
		"additional_addresses[0]: 10.0.0.1:80 is already": {AdditionalAddresses: []string{"10.0.0.1:80"}},
		"additional_addresses[1]: [::2]:80 is already":    {AdditionalAddresses: []string{"[::2]:80", "[::2]:80"}},
		"additional_addresses[0]: \"fe80::1%eth0\" is":    {AdditionalAddresses: []string{"[fe80::1%eth0]:80"}},
		"17 addresses, want at most 16":                   {AdditionalAddresses: make17()},
		"metadata: bad metadata":                          {Metadata: `[]`},
		"lb_endpoints[0].metadata.filter_metadata: \"\"":  {Metadata: `{"":{}}`},
		"nested deeper than 16 levels":                    {Metadata: isobar.Metadata(`{"a":` + strings.Repeat(`{"x":`, 17) + `0` + strings.Repeat(`}`, 18))},
		"bytes, want at most 65536":                       {Metadata: isobar.Metadata(`{"a":{"x":"` + strings.Repeat("y", 1<<16) + `"}}`)},
	} {
		_, err := resource.Assignment(detailed(&isobar.Endpoint{Details: d}))
		if !errors.Is(err, rpc.ErrRefused) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	for says, c := range map[string]*isobar.EndpointCheck{
		"health_check_config.hostname: \"\\n\"":      {Hostname: "\n"},
		"health_check_config.address: \"localhost\"": {Address: "localhost"},
	} {
		_, err := resource.Assignment(detailed(&isobar.Endpoint{Check: c}))
		if !errors.Is(err, rpc.ErrRefused) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

func make17() []string {
	var out []string
	for i := range 17 {
		out = append(out, "10.1.0.1:"+string(rune('1'+i/10))+string(rune('0'+i%10)))
	}
	return out
}

// Metadata survive the way through the message.
func TestMetadataOf(t *testing.T) {
	for _, want := range []isobar.Metadata{"", `{"a":{}}`, `{"envoy.lb":{"f":1.5,"l":[1,"x",true,{}],"n":null,"version":"canary"}}`} {
		m, err := resource.Assignment(detailed(&isobar.Endpoint{Details: &isobar.EndpointDetails{Metadata: want}}))
		if err != nil {
			t.Fatal(err)
		}
		got, err := resource.MetadataOf(m.GetEndpoints()[0].GetLbEndpoints()[0].GetMetadata())
		if err != nil || got != want {
			t.Errorf("%s came back as %s, %v", want, got, err)
		}
	}
	v := structpb.NewBoolValue(true)
	for range 10_000 {
		v = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})
	}
	deep := &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"a": {Fields: map[string]*structpb.Value{"x": v}}}}
	if got, err := resource.MetadataOf(deep); !errors.Is(err, isobar.ErrBadMetadata) {
		t.Errorf("%q, %v, want an error of depth", got, err)
	}
}
