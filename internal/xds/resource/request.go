package resource

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// Limits bound what one request may hold. The zero value means the defaults.
type Limits struct {
	Names    int // resource names in one list, and of one type on one stream; default 20,000
	NameSize int // bytes of one resource name; default 2,048
}

const (
	defaultNames = 20_000
	// DefaultNameSize bounds a name, in bytes.
	DefaultNameSize = 2_048
	maxToken        = 1_024 // bytes of a type URL, a version or a nonce
	maxErrorText    = 4_096 // bytes of a NACK's text that are kept
)

func (l Limits) withDefaults() Limits {
	if l.Names <= 0 {
		l.Names = defaultNames
	}
	if l.NameSize <= 0 {
		l.NameSize = DefaultNameSize
	}
	return l
}

// MaxNames is how many names may be subscribed to, of one type on one stream.
func (l Limits) MaxNames() int { return l.withDefaults().Names }

// Head is what state-of-the-world and delta requests have in common.
type Head struct {
	Node    *corev3.Node // to be trusted in the first message of a stream only; its reader sets nil
	Kind    Kind
	API     rpc.APIVersion // V3 or V2; by the type URL
	TypeURL string
	Nonce   string // "" = not an answer to a response
	Nack    bool   // the response was rejected
	Error   string // the client's reason, shortened
}

// Request is a state-of-the-world request.
type Request struct {
	Head

	Version string   // last accepted by the client
	Names   []string // everything subscribed; may repeat names
}

// DeltaRequest is a delta request.
type DeltaRequest struct {
	Head

	Subscribe   []string
	Unsubscribe []string
	Initial     map[string]string // resource name -> version that the client holds
}

// What strings take beside their bytes, about: their headers, and their places in a map.
const (
	stringCost = 24
	entryCost  = 64
)

// Size is what a request without its node takes in memory, in bytes, about.
func (r *Request) Size() int { return r.size() + len(r.Version) + sizeOf(r.Names) }

// Size is what a request without its node takes in memory, in bytes, about.
func (r *DeltaRequest) Size() int {
	n := r.size() + sizeOf(r.Subscribe) + sizeOf(r.Unsubscribe)
	for name, version := range r.Initial {
		n += entryCost + len(name) + len(version)
	}
	return n
}

func (h *Head) size() int { return len(h.TypeURL) + len(h.Nonce) + len(h.Error) }

func sizeOf(names []string) int {
	n := stringCost * len(names)
	for _, name := range names {
		n += len(name)
	}
	return n
}

// RequestFrom checks and converts a request. The type of a service for one
// kind of resource is given in only, and taken where the request leaves it
// out; it is "" on aggregated streams. What a request says counts: resources of
// v3 may be asked for over the services of v2. Errors name the field.
func RequestFrom(r *discoveryv3.DiscoveryRequest, only string, limits Limits) (Request, error) {
	limits = limits.withDefaults()
	if len(r.GetResourceLocators()) > 0 {
		return Request{}, rpc.BadMessagef("resource_locators", "not supported: use resource_names")
	}
	head, err := headFrom(r.GetNode(), r.GetTypeUrl(), only, r.GetResponseNonce(), r.GetErrorDetail())
	if err != nil {
		return Request{}, err
	}
	if len(r.GetVersionInfo()) > maxToken {
		return Request{}, rpc.BadMessagef("version_info", "%d bytes long, want at most %d", len(r.GetVersionInfo()), maxToken)
	}
	if err := checkNames("resource_names", r.GetResourceNames(), limits); err != nil {
		return Request{}, err
	}
	return Request{Head: head, Version: r.GetVersionInfo(), Names: r.GetResourceNames()}, nil
}

// DeltaRequestFrom is RequestFrom for delta streams.
func DeltaRequestFrom(r *discoveryv3.DeltaDiscoveryRequest, only string, limits Limits) (DeltaRequest, error) {
	limits = limits.withDefaults()
	if len(r.GetResourceLocatorsSubscribe())+len(r.GetResourceLocatorsUnsubscribe()) > 0 {
		return DeltaRequest{}, rpc.BadMessagef("resource_locators_subscribe", "not supported: use resource_names_subscribe")
	}
	head, err := headFrom(r.GetNode(), r.GetTypeUrl(), only, r.GetResponseNonce(), r.GetErrorDetail())
	if err != nil {
		return DeltaRequest{}, err
	}
	if err := checkNames("resource_names_subscribe", r.GetResourceNamesSubscribe(), limits); err != nil {
		return DeltaRequest{}, err
	}
	if err := checkNames("resource_names_unsubscribe", r.GetResourceNamesUnsubscribe(), limits); err != nil {
		return DeltaRequest{}, err
	}
	if err := checkInitial(r.GetInitialResourceVersions(), limits); err != nil {
		return DeltaRequest{}, err
	}
	return DeltaRequest{
		Head:        head,
		Subscribe:   r.GetResourceNamesSubscribe(),
		Unsubscribe: r.GetResourceNamesUnsubscribe(),
		Initial:     r.GetInitialResourceVersions(),
	}, nil
}

func headFrom(node *corev3.Node, url, only, nonce string, detail *statuspb.Status) (Head, error) {
	if url == "" {
		url = only
	}
	switch {
	case url == "":
		return Head{}, rpc.BadMessagef("type_url", "missing: an aggregated stream needs it in every request")
	case only != "" && KindOf(url) != KindOf(only):
		return Head{}, rpc.BadMessagef("type_url", "%.200q on a stream for %s", url, baseName(only))
	case len(url) > maxToken:
		return Head{}, rpc.BadMessagef("type_url", "%d bytes long, want at most %d", len(url), maxToken)
	case !strings.HasPrefix(url, TypePrefix) || len(url) == len(TypePrefix):
		return Head{}, rpc.BadMessagef("type_url", "%.200q, want %s and a message name", url, TypePrefix)
	case len(nonce) > maxToken:
		return Head{}, rpc.BadMessagef("response_nonce", "%d bytes long, want at most %d", len(nonce), maxToken)
	}
	h := Head{Node: node, TypeURL: url, Nonce: nonce}
	h.Kind, h.API = ParseURL(url)
	if detail != nil {
		h.Nack, h.Error = true, shorten(detail.GetMessage(), maxErrorText)
	}
	return h, nil
}

// checkNames lets an empty name pass: no resource has it, so it is like any other
// name that does not exist, and refusing it would end the stream of all the others.
func checkNames(field string, names []string, limits Limits) error {
	if len(names) > limits.Names {
		return rpc.BadMessagef(field, "%d names, want at most %d", len(names), limits.Names)
	}
	for i, n := range names {
		if len(n) > limits.NameSize {
			return rpc.BadMessagef(field, "name %d is %d bytes long, want at most %d", i, len(n), limits.NameSize)
		}
	}
	return nil
}

func checkInitial(versions map[string]string, limits Limits) error {
	const field = "initial_resource_versions"
	if len(versions) > limits.Names {
		return rpc.BadMessagef(field, "%d names, want at most %d", len(versions), limits.Names)
	}
	for n, v := range versions {
		if len(n) > limits.NameSize {
			return rpc.BadMessagef(field, "a name is %d bytes long, want at most %d", len(n), limits.NameSize)
		}
		if len(v) > maxToken {
			return rpc.BadMessagef(field, "the version of %.100q is %d bytes long, want at most %d", n, len(v), maxToken)
		}
	}
	return nil
}

// maxComplaint bounds what is said about one message, in bytes.
const maxComplaint = 500

// Complaint is the text of an error about a message, for its sender. Parsers of JSON quote the
// parts that they can't read, however long these are.
func Complaint(err error) string { return shorten(err.Error(), maxComplaint) }

// shorten cuts s to at most n bytes, between runes, and keeps nothing of the rest.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n])
}

// Fields of a DiscoveryRequest, in the order in which all clients encode them.
const (
	requestVersion = 1
	requestNode    = 2
	requestNames   = 3
	requestURL     = 4
	requestNonce   = 5
)

// AckHead returns the version of an encoded state-of-the-world request, and what
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
// at its beginning, with its tag in one byte; else the message is left as it is.
func field(message []byte, number protowire.Number) (value, rest []byte, ok bool) {
	if len(message) == 0 || uint64(message[0]) != protowire.EncodeTag(number, protowire.BytesType) {
		return nil, message, false
	}
	value, n := protowire.ConsumeBytes(message[1:])
	if n < 0 {
		return nil, message, false
	}
	return value, message[1+n:], true
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
