package loadgen

import (
	"errors"
	"fmt"
	"hash/maphash"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// maxCatalog bounds the assignments that are remembered.
const maxCatalog = 65_536

// catalog holds each distinct assignment once, decoded and judged: all clients
// of a zone get the same bytes.
type catalog struct {
	seed maphash.Seed

	mu     sync.RWMutex
	known  map[uint64]*assignment
	places map[isobar.Locality][]byte // encoded
}

// assignment is what clients do with an assignment. It is immutable.
type assignment struct {
	service string
	refused error // why a client would not take it
	pass    float64
	shares  []share
	where   []isobar.Locality // that have endpoints
}

// share is the part of a client's requests that goes to a locality.
type share struct {
	locality []byte // encoded
	part     float64
}

func newCatalog() *catalog {
	return &catalog{seed: maphash.MakeSeed(), known: map[uint64]*assignment{}, places: map[isobar.Locality][]byte{}}
}

// assignment returns what the encoded assignment says.
func (c *catalog) assignment(encoded []byte) (*assignment, error) {
	key := maphash.Bytes(c.seed, encoded)
	c.mu.RLock()
	a := c.known[key]
	c.mu.RUnlock()
	if a != nil {
		return a, nil
	}
	a, err := c.read(encoded)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxCatalog { // those in use stay with their clients
		clear(c.known)
	}
	c.known[key] = a
	return a, nil
}

func (c *catalog) read(encoded []byte) (*assignment, error) {
	name, err := firstString(encoded, fieldAssignmentCluster)
	if err != nil {
		return nil, err
	}
	a := &assignment{service: name}
	cluster, err := judge(encoded, name)
	if err != nil {
		a.refused = err
		return a, nil //nolint:nilerr // the client says it to the server
	}
	return a, c.predict(a, cluster)
}

// judge decodes an assignment and returns what data planes read from it, or why
// one of them would refuse it.
func judge(encoded []byte, name string) (dataplane.Cluster, error) {
	var m endpointv3.ClusterLoadAssignment
	if err := proto.Unmarshal(encoded, &m); err != nil {
		return dataplane.Cluster{}, err
	}
	if err := resource.CheckAssignment(&m, name); err != nil {
		return dataplane.Cluster{}, err
	}
	return resource.ClusterFrom(&m)
}

// predict fills in what Envoy would do.
func (c *catalog) predict(a *assignment, cluster dataplane.Cluster) error {
	p := dataplane.Predict(cluster, dataplane.Envoy, dataplane.DefaultOptions())
	a.pass = p.PassPercent / 100
	at := map[isobar.Locality]int{}
	for i := range p.Priorities {
		for _, l := range p.Priorities[i].Localities {
			if len(l.Endpoints) > 0 {
				a.where = append(a.where, l.Locality)
			}
			if l.Share == 0 {
				continue
			}
			if k, ok := at[l.Locality]; ok {
				a.shares[k].part += l.Share
				continue
			}
			place, err := c.place(l.Locality)
			if err != nil {
				return err
			}
			at[l.Locality] = len(a.shares)
			a.shares = append(a.shares, share{place, l.Share})
		}
	}
	return nil
}

// place returns an encoded locality, each once.
func (c *catalog) place(l isobar.Locality) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b, ok := c.places[l]; ok {
		return b, nil
	}
	b, err := proto.Marshal(&corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone})
	if err != nil {
		return nil, fmt.Errorf("locality %s: %w", l, err)
	}
	b = append(protowire.AppendVarint(nil, uint64(len(b))), b...)
	c.places[l] = b
	return b, nil
}

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

// firstString returns a field of a message that is a string.
func firstString(b []byte, want protowire.Number) (s string, err error) {
	err = eachBytes(b, func(field protowire.Number, v []byte) error {
		if field == want {
			s = string(v)
		}
		return nil
	})
	return s, err
}
