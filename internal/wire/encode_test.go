package wire_test

import (
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/wire"
)

func encoded(t *testing.T, name string) *wire.Encoded {
	t.Helper()
	e, err := wire.Encode(name, wire.Endpoints, wire.EmptyAssignment(name))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Responses assembled from pieces are what the generated code makes of them.
func TestPiecesAreResponses(t *testing.T) {
	a, b := encoded(t, "a"), encoded(t, "b")
	var sotw, delta []byte
	sotw = append(sotw, wire.ResponseHead("v7")...)
	sotw = append(append(sotw, a.SotW...), b.SotW...)
	sotw = append(sotw, wire.ResponseTail(wire.EndpointsURL, "plane", false)...)
	sotw = wire.AppendNonce(sotw, "n1")
	var r discoveryv3.DiscoveryResponse
	if err := proto.Unmarshal(sotw, &r); err != nil {
		t.Fatal(err)
	}
	if r.GetVersionInfo() != "v7" || r.GetNonce() != "n1" || r.GetTypeUrl() != wire.EndpointsURL ||
		r.GetControlPlane().GetIdentifier() != "plane" || len(r.GetResources()) != 2 || len(r.ProtoReflect().GetUnknown()) != 0 {
		t.Errorf("state of the world: %v", &r)
	}

	delta = append(delta, wire.ResponseHead("v7")...)
	delta = append(append(delta, a.Delta...), a.Body...)
	delta = wire.AppendRemoved(delta, "gone")
	delta = append(delta, wire.ResponseTail(wire.EndpointsURL, "plane", true)...)
	delta = wire.AppendNonce(delta, "n1")
	var d discoveryv3.DeltaDiscoveryResponse
	if err := proto.Unmarshal(delta, &d); err != nil {
		t.Fatal(err)
	}
	if d.GetSystemVersionInfo() != "v7" || d.GetNonce() != "n1" || d.GetTypeUrl() != wire.EndpointsURL ||
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
	c := wire.ServerCodec()
	m := &discoveryv3.DiscoveryRequest{TypeUrl: wire.ClusterURL}
	plain, err := c.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var back discoveryv3.DiscoveryRequest
	if err := c.Unmarshal(plain, &back); err != nil || !proto.Equal(m, &back) {
		t.Errorf("protobuf messages: %v, %v", &back, err)
	}
	pieces, err := c.Marshal(&wire.Frame{Pieces: mem.BufferSlice{mem.SliceBuffer("ab"), mem.SliceBuffer("c")}})
	if err != nil || string(pieces.Materialize()) != "abc" {
		t.Errorf("frames: %q, %v", pieces.Materialize(), err)
	}
	var raw wire.RawMessage
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
