package resource

import (
	"math"
	"net/netip"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// EncodeAssignment encodes an assignment under the name by which it is asked
// for, checked against the rules of all clients, as EncodeAs does. Errors wrap
// ErrRefused and name the field.
func EncodeAssignment(as rpc.As, name string, a *isobar.Assignment) (*Encoded, error) {
	if as.API == rpc.V3 {
		e, _ := plainEncoders.Get().(*plainEncoder) // nothing else is in there
		defer plainEncoders.Put(e)
		if value, ok := e.encode(name, a); ok {
			return frame(as, name, Endpoints, value, a.ResourceTTL)
		}
	}
	m, err := Assignment(a)
	if err != nil {
		return nil, err
	}
	if name != a.Service {
		m.ClusterName = name
		if err := CheckAssignment(m, name); err != nil {
			return nil, err
		}
	}
	return EncodeAs(as, name, Endpoints, m, a.ResourceTTL)
}

// Field numbers of what an assignment is made of, beside those that load reports
// have too.
const (
	assignmentName      = 1
	assignmentEndpoints = 2
	assignmentPolicyAt  = 4

	groupLocality  = 1
	groupEndpoints = 2
	groupWeight    = 3
	groupPriority  = 5

	lbEndpointEndpoint = 1
	lbEndpointHealth   = 2
	lbEndpointMetadata = 3
	lbEndpointWeight   = 4

	endpointAt  = 1
	uint32Value = 1
)

// plainEncoder writes assignments without making messages of them first: a
// fleet gets thousands at once whenever weights move. It writes what is plainly
// good; all else, with details of endpoints or with something wrong, is left to
// Assignment, which says what. What both write is the same, byte for byte.
type plainEncoder struct {
	out, group []byte
	ip         []byte
	marks      [2][]byte // metadata of the next endpoint: where it does not drain, and where it does; see mark
	addresses  map[netip.AddrPort]struct{}
	localities map[isobar.Locality]struct{} // of a priority
}

var plainEncoders = sync.Pool{New: func() any {
	return &plainEncoder{addresses: map[netip.AddrPort]struct{}{}, localities: map[isobar.Locality]struct{}{}}
}}

// encode returns the encoded message, which is good until the next call.
func (e *plainEncoder) encode(name string, a *isobar.Assignment) (_ []byte, ok bool) {
	clear(e.addresses)
	if name == "" || a.Service == "" || !utf8.ValidString(name) || !utf8.ValidString(a.Service) || len(a.Priorities) > maxPriority+1 {
		return nil, false
	}
	policy, ok := e.policy(a)
	if !ok {
		return nil, false
	}
	e.out = appendString(e.out[:0], assignmentName, name)
	for priority, localities := range a.Priorities {
		if len(localities) == 0 {
			return nil, false
		}
		clear(e.localities)
		sum := uint64(0)
		for i := range localities {
			l := &localities[i]
			if sum += uint64(l.Weight); l.Weight == 0 || sum > math.MaxUint32 || !e.appendGroup(l, priority) {
				return nil, false
			}
			e.out = appendMessage(e.out, assignmentEndpoints, e.group)
		}
	}
	if policy != nil {
		e.out = appendMessage(e.out, assignmentPolicyAt, policy)
	}
	return e.out, true
}

// appendGroup makes group a locality with its endpoints.
func (e *plainEncoder) appendGroup(l *isobar.LocalityWeight, priority int) bool {
	if l.EndpointGroup == nil || l.Metadata != "" {
		return false
	}
	at := l.Locality
	if _, twice := e.localities[at]; twice || !utf8.ValidString(at.Region) || !utf8.ValidString(at.Zone) || !utf8.ValidString(at.SubZone) {
		return false
	}
	e.localities[at] = struct{}{}
	e.group = protowire.AppendTag(e.group[:0], groupLocality, protowire.BytesType)
	e.group = protowire.AppendVarint(e.group, uint64(sizeString(at.Region)+sizeString(at.Zone)+sizeString(at.SubZone))) //nolint:gosec // a length
	e.group = appendSet(e.group, rpc.LocalityRegion, at.Region)
	e.group = appendSet(e.group, rpc.LocalityZone, at.Zone)
	e.group = appendSet(e.group, rpc.LocalitySubZone, at.SubZone)
	sum := uint64(0)
	for i := range l.Endpoints {
		w := &l.Endpoints[i]
		if sum += uint64(w.Weight); sum > math.MaxUint32 || !e.appendEndpoint(w) {
			return false
		}
	}
	e.group = appendWeight(e.group, groupWeight, l.Weight)
	if priority > 0 {
		e.group = appendNumber(e.group, groupPriority, uint64(priority))
	}
	return true
}

// appendEndpoint appends an endpoint to group. Nothing in it is longer than 127
// bytes, so every length is one byte.
func (e *plainEncoder) appendEndpoint(w *isobar.WeightedEndpoint) bool {
	at, err := netip.ParseAddrPort(w.Address)
	if err != nil || at.Port() == 0 || at.Addr().Zone() != "" || w.Weight == 0 || w.Health > isobar.Degraded || w.Config != nil {
		return false
	}
	if _, twice := e.addresses[at]; twice {
		return false
	}
	e.addresses[at] = struct{}{}
	e.ip = at.Addr().AppendTo(e.ip[:0])
	port := uint64(at.Port())
	socket := 2 + len(e.ip) + 1 + protowire.SizeVarint(port)
	size := 6 + socket + 3 + protowire.SizeVarint(uint64(w.Weight))
	if w.Health != isobar.Unknown {
		size += 2
	}
	mark := e.marks[0]
	if w.Health == isobar.Draining {
		mark = e.marks[1]
	}
	e.marks = [2][]byte{nil, drainingMark}
	if mark != nil {
		size += 2 + len(mark)
	}
	b := e.group
	b = appendHead(b, groupEndpoints, size)
	if w.Health != isobar.Unknown {
		b = appendNumber(b, lbEndpointHealth, uint64(w.Health))
	}
	if mark != nil {
		b = append(appendHead(b, lbEndpointMetadata, len(mark)), mark...)
	}
	b = appendWeight(b, lbEndpointWeight, w.Weight)
	b = appendHead(b, lbEndpointEndpoint, 4+socket) // the generated types write it last, as part of a oneof
	b = appendHead(b, endpointAt, 2+socket)
	b = appendHead(b, rpc.AddressSocket, socket)
	b = appendHead(b, rpc.SocketHost, len(e.ip))
	b = append(b, e.ip...)
	e.group = appendNumber(b, rpc.SocketPort, port)
	return true
}

// policy returns the encoded policy, which is hardly ever there, and makes the marks
// of the first endpoint.
func (e *plainEncoder) policy(a *isobar.Assignment) (encoded []byte, ok bool) {
	e.marks = [2][]byte{nil, drainingMark}
	p, err := assignmentPolicy(a)
	if err != nil {
		return nil, false
	}
	if p == nil {
		return nil, true
	}
	if checkPolicy(p) != nil {
		return nil, false
	}
	if encoded, err = deterministic.Marshal(p); err != nil {
		return nil, false
	}
	e.marks[0], e.marks[1], err = encodedMarks(p)
	return encoded, err == nil
}

// appendHead appends the tag of a field with a number below 16, and a length
// below 128.
func appendHead(b []byte, field protowire.Number, size int) []byte {
	return append(b, byte(field<<3)|byte(protowire.BytesType), byte(size)) //nolint:gosec // as small as that
}

func appendNumber(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

// appendWeight appends a wrapped number that is not 0.
func appendWeight(b []byte, field protowire.Number, v uint32) []byte {
	b = appendHead(b, field, 1+protowire.SizeVarint(uint64(v)))
	return appendNumber(b, uint32Value, uint64(v))
}

// sizeString is what appendSet appends for a field with a number below 16.
func sizeString(s string) int {
	if s == "" {
		return 0
	}
	return 1 + protowire.SizeBytes(len(s))
}

// appendSet appends a string that is not empty.
func appendSet(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return appendString(b, field, s)
}
