package resource

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// deterministic makes equal messages equal bytes, and so equal versions,
// within one build of the program.
var deterministic = proto.MarshalOptions{Deterministic: true}

// Field numbers of google.protobuf.Any, DiscoveryResponse,
// DeltaDiscoveryResponse and Resource.
const (
	anyURL   = 1
	anyValue = 2

	responseVersion      = 1
	responseResources    = 2
	responseURL          = 4
	responseNonce        = 5
	responseControlPlane = 6

	deltaRemoved      = 6
	deltaControlPlane = 7

	resourceVersion = 1
	resourceBody    = 2
	resourceName    = 3
	resourceTTL     = 6

	controlPlaneIdentifier = 1
)

// Encoded is a resource as it goes over the wire, framed for both kinds of
// stream. The bytes are shared by all streams and never written again.
type Encoded struct {
	Name    string
	Version string // hash of the bytes: equal content has equal versions everywhere
	// Base is the version that the resource would have if it dropped nothing,
	// where what is dropped depends on who asks; else it is empty.
	Base string
	SotW []byte // a whole entry of DiscoveryResponse.resources
	// Delta is the head of an entry of DeltaDiscoveryResponse.resources; the
	// entry ends with Body.
	Delta []byte
	Body  []byte // the google.protobuf.Any; the tail of SotW
	// Beat tells a client that what it has still holds: a whole entry of
	// DeltaDiscoveryResponse.resources. It is there only with a TTL.
	Beat []byte

	// The fields above as the transport takes them: made once, because each
	// conversion costs memory of its own.
	sotw, delta, body mem.Buffer
}

// AppendSotW appends the resource to the pieces of a DiscoveryResponse.
func (e *Encoded) AppendSotW(pieces mem.BufferSlice) mem.BufferSlice { return append(pieces, e.sotw) }

// AppendDelta appends the resource to the pieces of a DeltaDiscoveryResponse.
func (e *Encoded) AppendDelta(pieces mem.BufferSlice) mem.BufferSlice {
	return append(pieces, e.delta, e.body)
}

// share prepares the pieces.
func (e *Encoded) share() {
	e.sotw, e.delta, e.body = mem.SliceBuffer(e.SotW), mem.SliceBuffer(e.Delta), mem.SliceBuffer(e.Body)
}

// Encode encodes a resource of v3 deterministically.
func Encode(name string, kind Kind, m proto.Message) (*Encoded, error) {
	return EncodeAs(rpc.As{}, name, kind, m, 0)
}

// EncodeAs encodes a resource of v3 for clients of some API version,
// deterministically. It returns nil without an error for what did not exist at
// the time of the API version. A ttl > 0 is added for clients that support it.
func EncodeAs(as rpc.As, name string, kind Kind, m proto.Message, ttl time.Duration) (*Encoded, error) {
	value, err := translate(as.API, kind, m)
	if err != nil || value == nil {
		return nil, err
	}
	return frame(as, name, kind, value, ttl)
}

// frame frames an encoded message for both kinds of stream. It keeps no
// reference to value.
func frame(as rpc.As, name string, kind Kind, value []byte, ttl time.Duration) (*Encoded, error) {
	url := kind.URLIn(as.API)
	size := protowire.SizeTag(anyURL) + protowire.SizeBytes(len(url)) + protowire.SizeTag(anyValue) + protowire.SizeBytes(len(value))
	whole := make([]byte, 0, protowire.SizeTag(responseResources)+protowire.SizeBytes(size))
	whole = protowire.AppendTag(whole, responseResources, protowire.BytesType)
	whole = protowire.AppendVarint(whole, uint64(size)) //nolint:gosec // a length
	whole = appendString(whole, anyURL, url)
	whole = appendMessage(whole, anyValue, value)
	body := whole[len(whole)-size:]
	e := &Encoded{Name: name, Version: hashOf(body)}
	if ttl > 0 && as.TTL {
		if err := e.frameWithTTL(body, ttl); err != nil {
			return nil, err
		}
	} else {
		e.SotW, e.Body = whole, body
		e.Delta = e.deltaHead(nil)
	}
	e.share()
	return e, nil
}

func hashOf(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// frameWithTTL frames a resource that the client shall forget unless it hears
// of it again. State-of-the-world responses carry it in a wrapper.
func (e *Encoded) frameWithTTL(body []byte, ttl time.Duration) error {
	d, err := deterministic.Marshal(durationpb.New(ttl))
	if err != nil {
		return fmt.Errorf("encode the ttl of %q: %w", e.Name, err)
	}
	e.Version = hashOf(body, d)
	e.Body = body
	e.Delta = e.deltaHead(d)
	beat := e.resourceHead(d)
	e.Beat = appendMessage(nil, responseResources, beat)
	whole := appendMessage(slices.Clip(beat), resourceBody, body)
	e.SotW = appendMessage(nil, responseResources, wrapped(whole))
	return nil
}

// wrapperURL is the type of the message that carries a resource with its TTL.
const wrapperURL = TypePrefix + "envoy.service.discovery.v3.Resource"

func wrapped(resource []byte) []byte {
	return appendMessage(appendString(nil, anyURL, wrapperURL), anyValue, resource)
}

// resourceHead encodes all of a Resource but what it carries.
func (e *Encoded) resourceHead(ttl []byte) []byte {
	inner := appendString(nil, resourceVersion, e.Version)
	inner = appendString(inner, resourceName, e.Name)
	if ttl != nil {
		inner = appendMessage(inner, resourceTTL, ttl)
	}
	return inner
}

func (e *Encoded) deltaHead(ttl []byte) []byte {
	inner := e.resourceHead(ttl)
	inner = protowire.AppendTag(inner, resourceBody, protowire.BytesType)
	inner = protowire.AppendVarint(inner, uint64(len(e.Body)))
	head := protowire.AppendTag(nil, responseResources, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(inner)+len(e.Body)))
	return append(head, inner...)
}

func appendMessage(b []byte, field protowire.Number, m []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendBytes(b, m)
}

// ResponseHead encodes what stands before the resources of a response: its
// version, in the field that both API versions share.
func ResponseHead(version string) []byte { return appendString(nil, responseVersion, version) }

// ResponseTail encodes what all responses of a kind of stream end with: type
// URL and the identifier of this control plane.
func ResponseTail(url, identifier string, delta bool) []byte {
	field := protowire.Number(responseControlPlane)
	if delta {
		field = deltaControlPlane
	}
	out := appendString(nil, responseURL, url)
	if identifier == "" {
		return out
	}
	plane := appendString(nil, controlPlaneIdentifier, identifier)
	out = protowire.AppendTag(out, field, protowire.BytesType)
	return protowire.AppendBytes(out, plane)
}

// AppendNonce appends the nonce of a response, which is in the same field in
// both API versions.
func AppendNonce(b []byte, nonce string) []byte { return appendString(b, responseNonce, nonce) }

// AppendRemoved appends an entry of DeltaDiscoveryResponse.removed_resources.
func AppendRemoved(b []byte, name string) []byte { return appendString(b, deltaRemoved, name) }

func appendString(b []byte, field protowire.Number, s string) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendString(b, s)
}

// Steers is the version of what a resource says but for what is dropped, where
// clients of different classes drop different parts.
func (e *Encoded) Steers() string {
	if e.Base != "" {
		return e.Base
	}
	return e.Version
}

// JSON returns an encoded resource as JSON, with its type under "@type"
// and the field names of the proto files, as old clients want them. It must not
// be one with a TTL.
func JSON(api rpc.APIVersion, r *Encoded) ([]byte, error) {
	body := &anypb.Any{}
	if err := proto.Unmarshal(r.Body, body); err != nil {
		return nil, fmt.Errorf("resource %q: %w", r.Name, err)
	}
	out, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("resource %q: %w", r.Name, err)
	}
	if api == rpc.V2017 && body.GetTypeUrl() == EndpointsURLv2 {
		return withDrop2017(out, body.GetValue())
	}
	return out, nil
}

// withDrop2017 adds the one field that none of the types we have can say.
func withDrop2017(object, encoded []byte) ([]byte, error) {
	m := &endpointv3.ClusterLoadAssignment{}
	if err := proto.Unmarshal(encoded, m); err != nil {
		return nil, err
	}
	raw := m.GetPolicy().ProtoReflect().GetUnknown()
	if len(raw) == 0 {
		return object, nil
	}
	_, _, n := protowire.ConsumeTag(raw)
	percent, k := protowire.ConsumeFixed64(raw[max(n, 0):])
	if n < 0 || k < 0 {
		return nil, fmt.Errorf("resource %q: the API of 2017 has no such policy", m.GetClusterName())
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return nil, err
	}
	policy, err := json.Marshal(map[string]float64{"drop_overload": math.Float64frombits(percent)})
	if err != nil {
		return nil, err
	}
	fields["policy"] = policy
	return json.Marshal(fields)
}
