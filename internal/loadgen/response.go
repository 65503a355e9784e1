package loadgen

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// Fields of requests and responses of the discovery service, in v3.
const (
	fieldVersion           = 1 // both
	fieldNode              = 2 // requests
	fieldResources         = 2 // responses
	fieldNames             = 3 // requests
	fieldTypeURL           = 4 // both
	fieldNonce             = 5 // both
	fieldErrorDetail       = 6 // requests
	fieldStatusCode        = 1 // google.rpc.Status
	fieldStatusMessage     = 2 // google.rpc.Status
	fieldAnyURL            = 1
	fieldAnyValue          = 2
	fieldClusterName       = 1 // of a cluster
	fieldAssignmentCluster = 1 // of an assignment
)

var errResponse = errors.New("a response can't be read")

// response is a discovery response, as far as a client needs it. It reads
// itself, without a copy.
type response struct {
	catalog *catalog

	version, nonce, url string
	size                int
	clusters            []string      // names
	assignments         []*assignment // shared by all clients
}

// ReadMessage implements [rpc.Reader].
func (r *response) ReadMessage(encoded []byte) error {
	r.size = len(encoded)
	return eachBytes(encoded, func(field protowire.Number, v []byte) error {
		switch field {
		case fieldVersion:
			r.version = string(v)
		case fieldNonce:
			r.nonce = string(v)
		case fieldTypeURL:
			r.url = string(v)
		case fieldResources:
			return r.resource(v)
		default: // not needed
		}
		return nil
	})
}

// resource reads one resource, an Any.
func (r *response) resource(encoded []byte) error {
	var url, value []byte
	err := eachBytes(encoded, func(field protowire.Number, v []byte) error {
		switch field {
		case fieldAnyURL:
			url = v
		case fieldAnyValue:
			value = v
		default: // there is no other
		}
		return nil
	})
	if err != nil {
		return err
	}
	switch string(url) {
	case resource.ClusterURL:
		name, err := firstString(value, fieldClusterName)
		if err != nil {
			return err
		}
		r.clusters = append(r.clusters, name)
	case resource.EndpointsURL:
		a, err := r.catalog.assignment(value)
		if err != nil {
			return err
		}
		r.assignments = append(r.assignments, a)
	}
	return nil
}

// eachBytes calls f for each field that holds bytes; others are passed over.
func eachBytes(b []byte, f func(field protowire.Number, v []byte) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errResponse
		}
		b = b[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(field, kind, b); n < 0 {
				return errResponse
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return errResponse
		}
		b = b[n:]
		if err := f(field, v); err != nil {
			return err
		}
	}
	return nil
}

// firstString gives a field of a message that is a string.
func firstString(b []byte, want protowire.Number) (s string, err error) {
	err = eachBytes(b, func(field protowire.Number, v []byte) error {
		if field == want {
			s = string(v)
		}
		return nil
	})
	return s, err
}
