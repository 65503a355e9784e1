package resource_test

import (
	"bytes"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/xds/resource"
)

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
