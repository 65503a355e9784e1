package resource

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of a DiscoveryRequest, in the order in which all clients encode them.
const (
	requestVersion = 1
	requestNode    = 2
	requestNames   = 3
	requestURL     = 4
	requestNonce   = 5
)

// AckHead gives the version of an encoded state-of-the-world request, and what
// follows version and node, which is the names, or else what comes after them.
// It tells false for a request that has to be decoded to be understood.
func AckHead(request []byte) (version, rest []byte, ok bool) {
	version, request, ok = field(request, requestVersion)
	if ok && (len(version) > maxToken || !utf8.Valid(version)) {
		return nil, nil, false
	}
	_, request, _ = field(request, requestNode) // counts in a first request only
	return version, request, true
}

// AckTail reads what follows the names in the request of a client that accepts
// a response: its type URL and its nonce, and nothing else. It tells false for
// any other request: one that rejects, has more names, or fields that are out
// of order.
func AckTail(rest []byte) (url, nonce []byte, ok bool) {
	url, rest, ok = field(rest, requestURL)
	if !ok {
		return nil, nil, false
	}
	nonce, rest, ok = field(rest, requestNonce)
	return url, nonce, ok && len(rest) == 0 && len(nonce) > 0
}

// field takes a length-delimited field off an encoded message when it stands
// at its beginning; else the message is left as it is.
func field(message []byte, number protowire.Number) (value, rest []byte, ok bool) {
	got, kind, n := protowire.ConsumeTag(message)
	if n < 0 || got != number || kind != protowire.BytesType {
		return nil, message, false
	}
	value, m := protowire.ConsumeBytes(message[n:])
	if m < 0 {
		return nil, message, false
	}
	return value, message[n+m:], true
}

// CutName takes a name off what follows version and node; false when there is
// none at its beginning.
func CutName(rest []byte) (name, after []byte, ok bool) { return field(rest, requestNames) }

// EncodeNames returns names as a state-of-the-world request encodes them.
func EncodeNames(names []string) string {
	size := 0
	for _, n := range names {
		size += protowire.SizeTag(requestNames) + protowire.SizeBytes(len(n))
	}
	var b strings.Builder
	b.Grow(size)
	var head [2 * binary.MaxVarintLen64]byte
	for _, n := range names {
		_, _ = b.Write(protowire.AppendVarint(protowire.AppendTag(head[:0], requestNames, protowire.BytesType), uint64(len(n))))
		_, _ = b.WriteString(n)
	}
	return b.String()
}

// NamesWithin replaces names by the parts of what [EncodeNames] made of them.
func NamesWithin(encoded string, names []string) {
	at := 0
	for i, n := range names {
		at += protowire.SizeTag(requestNames) + protowire.SizeBytes(len(n))
		names[i] = encoded[at-len(n) : at]
	}
}
