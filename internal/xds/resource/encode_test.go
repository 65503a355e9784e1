package resource_test

import (
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

func encoded(t *testing.T, name string) *resource.Encoded {
	t.Helper()
	e, err := resource.Encode(name, resource.Endpoints, resource.EmptyAssignment(name))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Responses assembled from pieces are what the generated code makes of them.
func TestPiecesAreResponses(t *testing.T) {
	a, b := encoded(t, "a"), encoded(t, "b")
	var sotw, delta []byte
	sotw = append(sotw, resource.ResponseHead("v7")...)
	sotw = append(append(sotw, a.SotW...), b.SotW...)
	sotw = append(sotw, resource.ResponseTail(resource.EndpointsURL, "plane", false)...)
	sotw = resource.AppendNonce(sotw, "n1")
	var r discoveryv3.DiscoveryResponse
	if err := proto.Unmarshal(sotw, &r); err != nil {
		t.Fatal(err)
	}
	if r.GetVersionInfo() != "v7" || r.GetNonce() != "n1" || r.GetTypeUrl() != resource.EndpointsURL ||
		r.GetControlPlane().GetIdentifier() != "plane" || len(r.GetResources()) != 2 || len(r.ProtoReflect().GetUnknown()) != 0 {
		t.Errorf("state of the world: %v", &r)
	}

	delta = append(delta, resource.ResponseHead("v7")...)
	delta = append(append(delta, a.Delta...), a.Body...)
	delta = resource.AppendRemoved(delta, "gone")
	delta = append(delta, resource.ResponseTail(resource.EndpointsURL, "plane", true)...)
	delta = resource.AppendNonce(delta, "n1")
	var d discoveryv3.DeltaDiscoveryResponse
	if err := proto.Unmarshal(delta, &d); err != nil {
		t.Fatal(err)
	}
	if d.GetSystemVersionInfo() != "v7" || d.GetNonce() != "n1" || d.GetTypeUrl() != resource.EndpointsURL ||
		d.GetControlPlane().GetIdentifier() != "plane" || len(d.GetRemovedResources()) != 1 || len(d.ProtoReflect().GetUnknown()) != 0 {
		t.Errorf("delta: %v", &d)
	}
	for _, got := range []*discoveryv3.Resource{{Name: "a", Version: a.Version, Resource: r.GetResources()[0]}} {
		if !proto.Equal(got, d.GetResources()[0]) {
			t.Errorf("delta resource: %v, want %v", d.GetResources()[0], got)
		}
		var m endpointv3.ClusterLoadAssignment
		if err := got.GetResource().UnmarshalTo(&m); err != nil || m.GetClusterName() != "a" {
			t.Errorf("resource: %v, %v", &m, err)
		}
	}
}

func TestVersionIsThatOfTheBytes(t *testing.T) {
	if a, b := encoded(t, "a"), encoded(t, "a"); a.Version != b.Version {
		t.Error("equal content, different versions")
	}
	if a, b := encoded(t, "a"), encoded(t, "b"); a.Version == b.Version {
		t.Error("different content, equal versions")
	}
}

func TestServerCodec(t *testing.T) {
	c := rpc.ServerCodec()
	m := &discoveryv3.DiscoveryRequest{TypeUrl: resource.ClusterURL}
	plain, err := c.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var back discoveryv3.DiscoveryRequest
	if err := c.Unmarshal(plain, &back); err != nil || !proto.Equal(m, &back) {
		t.Errorf("protobuf messages: %v, %v", &back, err)
	}
	pieces, err := c.Marshal(&rpc.Frame{Pieces: mem.BufferSlice{mem.SliceBuffer("ab"), mem.SliceBuffer("c")}})
	if err != nil || string(pieces.Materialize()) != "abc" {
		t.Errorf("frames: %q, %v", pieces.Materialize(), err)
	}
	var raw rpc.RawMessage
	if err := c.Unmarshal(pieces, &raw); err != nil || string(raw.Data) != "abc" {
		t.Errorf("raw messages: %q, %v", raw.Data, err)
	}
	if _, err := c.Marshal("text"); err == nil {
		t.Error("what is no message is marshalled")
	}
	if c.Name() != "proto" {
		t.Errorf("its name is %q", c.Name())
	}
}
