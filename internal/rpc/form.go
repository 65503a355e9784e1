package rpc

// Form is one of the forms of the API that are in the field. Inside there is
// only v3; the others are translations at the edge.
type Form uint8

// The forms.
const (
	// V3 is the current one.
	V3 Form = iota
	// V2 is the form in which v2 was frozen.
	V2
	// V2017 is that of data-plane-api between 2017-11-30 and 2018-01-25. Its
	// methods and type URLs are those of V2: only the listener, or a rule on
	// the node, tells them apart.
	V2017
)

// Forms counts the forms.
const Forms = int(V2017) + 1

// String gives the name; it is bounded and fit for a metric label.
func (f Form) String() string { return [...]string{"v3", "v2", "2017"}[min(int(f), Forms-1)] }

// As is how a client wants its resources.
type As struct {
	Form Form
	TTL  bool // v3 only: it understands a time to live, in the kind of stream that it uses
	GRPC bool // it is a gRPC client, of whose clusters some are other ones; assignments are not
	// OldEnvoy says of a cluster that an Envoy gets it which refuses wrr_locality.
	OldEnvoy bool
	// Mark tells a listener or a cluster that returns from the one that was taken
	// away; 0 for none. See Remark.
	Mark uint16
}

// Variants counts the encodings of an assignment.
const Variants = Forms + 1

// Variant numbers the encodings of an assignment, from 0 for plain v3.
func (a As) Variant() int {
	if a.TTL && a.Form == V3 {
		return Forms
	}
	return int(a.Form)
}

// AsVariant is the inverse of Variant.
func AsVariant(n int) As {
	if n == Forms {
		return As{TTL: true}
	}
	return As{Form: Form(n)} //nolint:gosec // below Variants
}
