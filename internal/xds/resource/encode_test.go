package resource_test

import (
	"bytes"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
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

func marshalled(t interface{ Fatal(args ...any) }, m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// readAck reads an acceptance of a response with these names, as a stream that
// knows them does.
func readAck(request []byte, names []string) (url, nonce []byte, ok bool) {
	_, rest, ok := resource.AckHead(request)
	raw := []byte(resource.EncodeNames(names))
	if !ok || !bytes.HasPrefix(rest, raw) {
		return nil, nil, false
	}
	return resource.AckTail(rest[len(raw):])
}

func TestAcks(t *testing.T) {
	names := []string{"a", "b"}
	ack := func(change func(*discoveryv3.DiscoveryRequest)) []byte {
		r := &discoveryv3.DiscoveryRequest{VersionInfo: "7", ResourceNames: names, TypeUrl: resource.EndpointsURL, ResponseNonce: "n-1"}
		change(r)
		return marshalled(t, r)
	}
	for _, c := range []struct {
		name   string
		change func(*discoveryv3.DiscoveryRequest)
		want   bool
	}{
		{"plain", func(*discoveryv3.DiscoveryRequest) {}, true},
		{"with a node", func(r *discoveryv3.DiscoveryRequest) { r.Node = &corev3.Node{Id: "x"} }, true},
		{"without a version", func(r *discoveryv3.DiscoveryRequest) { r.VersionInfo = "" }, true},
		{"more names", func(r *discoveryv3.DiscoveryRequest) { r.ResourceNames = []string{"a", "b", "c"} }, false},
		{"fewer names", func(r *discoveryv3.DiscoveryRequest) { r.ResourceNames = []string{"a"} }, false},
		{"a longer name", func(r *discoveryv3.DiscoveryRequest) { r.ResourceNames = []string{"a", "bb"} }, false},
		{"another order", func(r *discoveryv3.DiscoveryRequest) { r.ResourceNames = []string{"b", "a"} }, false},
		{"no names", func(r *discoveryv3.DiscoveryRequest) { r.ResourceNames = nil }, false},
		{"no type", func(r *discoveryv3.DiscoveryRequest) { r.TypeUrl = "" }, false},
		{"no nonce", func(r *discoveryv3.DiscoveryRequest) { r.ResponseNonce = "" }, false},
		{"a rejection", func(r *discoveryv3.DiscoveryRequest) { r.ErrorDetail = &statuspb.Status{} }, false},
		{"locators", func(r *discoveryv3.DiscoveryRequest) {
			r.ResourceLocators = []*discoveryv3.ResourceLocator{{Name: "a"}}
		}, false},
	} {
		url, nonce, ok := readAck(ack(c.change), names)
		if ok != c.want {
			t.Errorf("%s: read is %v, want %v", c.name, ok, c.want)
		}
		if ok && (string(url) != resource.EndpointsURL || string(nonce) != "n-1") {
			t.Errorf("%s: %q, %q", c.name, url, nonce)
		}
	}
	if _, _, ok := readAck(marshalled(t, &discoveryv3.DiscoveryRequest{TypeUrl: resource.ClusterURL, ResponseNonce: "1"}), nil); !ok {
		t.Error("an acceptance without names is not read")
	}
}

func TestNamesAreWithinWhatWasEncoded(t *testing.T) {
	for _, names := range [][]string{nil, {"a"}, {"b", "a", "b", "*"}, {"ü", string(bytes.Repeat([]byte("x"), 300))}} {
		raw, within := resource.EncodeNames(names), slices.Clone(names)
		if resource.NamesWithin(raw, within); !slices.Equal(within, names) {
			t.Errorf("%q became %q", names, within)
		}
		if want := string(marshalled(t, &discoveryv3.DiscoveryRequest{ResourceNames: names})); raw != want {
			t.Errorf("%q is encoded as %x, want %x", names, raw, want)
		}
	}
}

// FuzzAck compares with the generated decoder: what is read as an acceptance
// with some names is one, with those names.
func FuzzAck(f *testing.F) {
	for _, m := range []*discoveryv3.DiscoveryRequest{
		{},
		{VersionInfo: "1", Node: &corev3.Node{Id: "x"}, ResourceNames: []string{"a", "b"}, TypeUrl: resource.EndpointsURL, ResponseNonce: "n"},
		{ResourceNames: []string{"a"}, TypeUrl: resource.ClusterURL, ResponseNonce: "n", ErrorDetail: &statuspb.Status{Message: "no"}},
	} {
		f.Add(marshalled(f, m))
	}
	f.Add([]byte("\x12\x01x\x1a\x01a\x1a\x01b\"\x01u*\x01n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m discoveryv3.DiscoveryRequest
		if proto.Unmarshal(data, &m) != nil {
			return // fails as a whole, whoever reads it
		}
		url, nonce, ok := readAck(data, m.GetResourceNames())
		if !ok {
			return
		}
		if string(url) != m.GetTypeUrl() || string(nonce) != m.GetResponseNonce() || m.GetErrorDetail() != nil || len(m.GetResourceLocators()) > 0 {
			t.Errorf("%x is read as type %q, nonce %q, and is %v", data, url, nonce, &m)
		}
		for _, other := range [][]string{{"a"}, {"a", "b"}, {}} {
			if _, _, ok := readAck(data, other); ok && !slices.Equal(other, m.GetResourceNames()) {
				t.Errorf("%x is read with the names %q, and has %q", data, other, m.GetResourceNames())
			}
		}
	})
}
