package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
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

	controlPlaneIdentifier = 1
)

// Encoded is a resource as it goes over the wire, framed for both forms of
// response. The bytes are shared by all streams and never written again.
type Encoded struct {
	Name    string
	Version string // hash of the bytes: equal content has equal versions everywhere
	SotW    []byte // a whole entry of DiscoveryResponse.resources
	// Delta is the head of an entry of DeltaDiscoveryResponse.resources; the
	// entry ends with Body.
	Delta []byte
	Body  []byte // the google.protobuf.Any; the tail of SotW
}

// Encode encodes a resource deterministically.
func Encode(name string, kind Kind, m proto.Message) (*Encoded, error) {
	value, err := deterministic.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s %q: %w", kind, name, err)
	}
	body := protowire.SizeTag(anyURL) + protowire.SizeBytes(len(kind.URL())) +
		protowire.SizeTag(anyValue) + protowire.SizeBytes(len(value))
	sotw := make([]byte, 0, protowire.SizeTag(responseResources)+protowire.SizeBytes(body))
	sotw = protowire.AppendTag(sotw, responseResources, protowire.BytesType)
	sotw = protowire.AppendVarint(sotw, uint64(body)) //nolint:gosec // a length
	start := len(sotw)
	sotw = appendString(sotw, anyURL, kind.URL())
	sotw = protowire.AppendTag(sotw, anyValue, protowire.BytesType)
	sotw = protowire.AppendBytes(sotw, value)

	sum := sha256.Sum256(sotw[start:])
	e := &Encoded{Name: name, Version: hex.EncodeToString(sum[:8]), SotW: sotw, Body: sotw[start:]}
	e.Delta = deltaHead(e)
	return e, nil
}

func deltaHead(e *Encoded) []byte {
	var inner []byte
	inner = appendString(inner, resourceVersion, e.Version)
	inner = appendString(inner, resourceName, e.Name)
	inner = protowire.AppendTag(inner, resourceBody, protowire.BytesType)
	inner = protowire.AppendVarint(inner, uint64(len(e.Body)))
	head := protowire.AppendTag(nil, responseResources, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(inner)+len(e.Body)))
	return append(head, inner...)
}

// ResponseHead encodes what stands before the resources of a response: its
// version, in the field that both forms share.
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
// both forms.
func AppendNonce(b []byte, nonce string) []byte { return appendString(b, responseNonce, nonce) }

// AppendRemoved appends an entry of DeltaDiscoveryResponse.removed_resources.
func AppendRemoved(b []byte, name string) []byte { return appendString(b, deltaRemoved, name) }

func appendString(b []byte, field protowire.Number, s string) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendString(b, s)
}
