package rpc

// APIVersion is one of the transport API versions that clients use. Inside there is
// only v3; the edge translates the others.
type APIVersion uint8

// The versions.
const (
	// V3 is the current one.
	V3 APIVersion = iota
	// V2 is v2 as it was frozen.
	V2
	// V2017 is the API of data-plane-api between 2017-11-30 and 2018-01-25. Its
	// methods and type URLs are those of V2: only the listener, or a rule on
	// the node, distinguishes them.
	V2017
)

// APIVersions is the number of versions.
const APIVersions = int(V2017) + 1

// String returns the name; it is bounded and fit for a metric label.
func (f APIVersion) String() string {
	return [...]string{"v3", "v2", "2017"}[min(int(f), APIVersions-1)]
}

// As is how a client wants its resources.
type As struct {
	API  APIVersion
	TTL  bool // v3 only: it understands a time to live, in the kind of stream that it uses
	GRPC bool // it is a gRPC client, of whose clusters some are other ones; assignments are not
	// OldEnvoy says of a cluster that an Envoy gets it which refuses wrr_locality.
	OldEnvoy bool
	// Mark tells a listener or a cluster that returns from the one that was
	// removed; 0 for none. See Remark.
	Mark uint16
}

// Variants counts the encodings of an assignment.
const Variants = APIVersions + 1

// Variant numbers the encodings of an assignment, from 0 for plain v3.
func (a As) Variant() int {
	if a.TTL && a.API == V3 {
		return APIVersions
	}
	return int(a.API)
}
