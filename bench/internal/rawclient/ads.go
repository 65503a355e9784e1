package rawclient

import (
	"errors"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// APIVersion is one version of the API: how a client asks for assignments.
type APIVersion struct {
	Method string // of the aggregated discovery service
	URL    string // type URL of assignments
}

// The API versions.
var (
	V3 = APIVersion{
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
		"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
	}
	V2 = APIVersion{
		"/envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources",
		"type.googleapis.com/envoy.api.v2.ClusterLoadAssignment",
	}
	V2017 = APIVersion{"/envoy.api.v2.AggregatedDiscoveryService/StreamAggregatedResources", V2.URL}
)

// Fields that requests and responses share, and those of requests.
const (
	fieldVersion = 1
	fieldNonce   = 5
)

// Subscriber subscribes each stream to the same names and accepts whatever
// comes. It is used by one connection.
type Subscriber struct {
	// Node returns the node of a stream.
	Node func(stream int) *corev3.Node
	// Got is called for each response, from the goroutine of the connection.
	Got func(stream int, size int)

	api    APIVersion
	names  []string
	middle []byte // of an acknowledgement: names and type URL
	ack    []byte // scratch
}

// NewSubscriber makes a subscriber to names.
func NewSubscriber(api APIVersion, names []string, node func(stream int) *corev3.Node, got func(stream, size int)) (*Subscriber, error) {
	middle, err := proto.Marshal(&discoveryv3.DiscoveryRequest{ResourceNames: names, TypeUrl: api.URL})
	return &Subscriber{Node: node, Got: got, api: api, names: slices.Clone(names), middle: middle}, err
}

// First encodes the first request of a stream.
func (s *Subscriber) First(stream int) []byte {
	b, err := proto.Marshal(&discoveryv3.DiscoveryRequest{Node: s.Node(stream), ResourceNames: s.names, TypeUrl: s.api.URL})
	if err != nil {
		panic(err) // made of plain strings
	}
	return b
}

var errResponse = errors.New("a response can't be read")

// Message implements Handler: it accepts a response.
func (s *Subscriber) Message(stream int, m []byte) ([]byte, error) {
	var version, nonce []byte
	size := len(m)
	for len(m) > 0 {
		field, kind, n := protowire.ConsumeTag(m)
		if n < 0 || kind != protowire.BytesType {
			return nil, errResponse
		}
		m = m[n:]
		v, n := protowire.ConsumeBytes(m)
		if n < 0 {
			return nil, errResponse
		}
		m = m[n:]
		if field == fieldVersion {
			version = v
		}
		if field == fieldNonce {
			nonce = v
		}
	}
	s.ack = s.ack[:0]
	s.ack = protowire.AppendTag(s.ack, fieldVersion, protowire.BytesType)
	s.ack = protowire.AppendBytes(s.ack, version)
	s.ack = append(s.ack, s.middle...)
	s.ack = protowire.AppendTag(s.ack, fieldNonce, protowire.BytesType)
	s.ack = protowire.AppendBytes(s.ack, nonce)
	s.Got(stream, size)
	return s.ack, nil
}
