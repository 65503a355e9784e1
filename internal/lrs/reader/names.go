package reader

import (
	"net"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// reportNames remembers the repeated parts of load reports, by their bytes on the wire:
// localities, addresses and names need not be decoded again, and all reports share them. It
// forgets everything when it is full.
type reportNames struct {
	mu         sync.RWMutex
	localities map[string]place
	addresses  map[string]string
	names      map[string]string
}

// place is a locality and its bytes.
type place struct {
	encoded  string           // empty when it is too long to be remembered
	locality *isobar.Locality // nil = the zero locality
}

// Bounds on the remembered parts.
const (
	maxRemembered     = 32_768 // of each
	maxRememberedSize = 512    // bytes of each, encoded
)

// remember notes a value under its bytes; the read lock is held and is held
// again afterwards.
func remember[T any](n *reportNames, table *map[string]T, encoded string, value T) {
	if len(encoded) > maxRememberedSize {
		return
	}
	n.mu.RUnlock()
	defer n.mu.RLock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if *table == nil || len(*table) >= maxRemembered {
		*table = map[string]T{}
	}
	(*table)[encoded] = value
}

// The functions below also return made, the memory for new texts, in bytes. The report that has
// them counts it: clients may send other names all the time, and the tables forget.

// name returns a string; false when it is not valid UTF-8.
func (n *reportNames) name(encoded []byte) (s string, made int, ok bool) {
	if s, ok := n.names[string(encoded)]; ok {
		return s, 0, true
	}
	if !utf8.Valid(encoded) {
		return "", 0, false
	}
	s = string(encoded)
	remember(n, &n.names, s, s)
	return s, len(s), true
}

// locality returns a locality. It tells false for bytes that are no locality, and
// for one of which a part is too long.
func (n *reportNames) locality(encoded []byte) (found place, made int, ok bool) {
	if l, ok := n.localities[string(encoded)]; ok {
		return l, 0, true
	}
	var (
		l  isobar.Locality
		at place
	)
	if !mergeLocality(&l, encoded) || longest(l) > rpc.MaxLocalityName {
		return at, 0, false
	}
	if !l.IsZero() {
		at.locality, made = &l, placeBytes(&l)
	}
	if len(encoded) <= maxRememberedSize {
		at.encoded = string(encoded)
		remember(n, &n.localities, at.encoded, at)
	}
	return at, made, true
}

// placeBytes is the memory of a locality that nothing shares.
func placeBytes(l *isobar.Locality) int {
	return sizeOf[isobar.Locality]() + len(l.Region) + len(l.Zone) + len(l.SubZone)
}

func longest(l isobar.Locality) int { return max(len(l.Region), len(l.Zone), len(l.SubZone)) }

// mergeLocality adds the fields of an encoded locality to l.
func mergeLocality(l *isobar.Locality, encoded []byte) bool {
	for c := (rpc.Cursor{Rest: encoded}); ; {
		if !c.Next() {
			return !c.Bad
		}
		var part *string
		switch c.Key {
		case rpc.LocalityRegion<<rpc.KeyShift | bytesKind:
			part = &l.Region
		case rpc.LocalityZone<<rpc.KeyShift | bytesKind:
			part = &l.Zone
		case rpc.LocalitySubZone<<rpc.KeyShift | bytesKind:
			part = &l.SubZone
		default:
			c.Skip()
			continue
		}
		b := c.Bytes()
		if !utf8.Valid(b) {
			return false
		}
		*part = string(b)
	}
}

// socket is an address while it is read.
type socket struct {
	set  bool // the address is a socket
	host string
	port uint32
}

// address returns an address as host:port; empty for an address that is no socket.
func (n *reportNames) address(encoded []byte) (text string, made int, ok bool) {
	if s, ok := n.addresses[string(encoded)]; ok {
		return s, 0, true
	}
	var s socket
	if !s.merge(encoded) {
		return "", 0, false
	}
	text = s.text()
	remember(n, &n.addresses, string(encoded), text)
	return text, len(text), true
}

func (s *socket) text() string {
	if !s.set || s.host == "" || len(s.host) > rpc.MaxLocalityName {
		return ""
	}
	return net.JoinHostPort(s.host, strconv.FormatUint(uint64(s.port), 10))
}

// merge adds the fields of an encoded Address. Of a oneof the last one counts.
func (s *socket) merge(encoded []byte) bool {
	for c := (rpc.Cursor{Rest: encoded}); ; {
		if !c.Next() {
			return !c.Bad
		}
		switch c.Key {
		case rpc.AddressSocket<<rpc.KeyShift | bytesKind:
			if !s.mergeSocket(c.Bytes()) {
				return false
			}
			s.set = true
		case rpc.AddressPipe<<rpc.KeyShift | bytesKind, rpc.AddressInternal<<rpc.KeyShift | bytesKind:
			c.Bytes()
			*s = socket{}
		default:
			c.Skip()
		}
	}
}

func (s *socket) mergeSocket(encoded []byte) bool {
	for c := (rpc.Cursor{Rest: encoded}); ; {
		if !c.Next() {
			return !c.Bad
		}
		switch c.Key {
		case rpc.SocketHost<<rpc.KeyShift | bytesKind:
			b := c.Bytes()
			if !utf8.Valid(b) {
				return false
			}
			s.host = string(b)
		case rpc.SocketPort<<rpc.KeyShift | varintKind:
			s.port = uint32(c.Varint()) //nolint:gosec // as protobuf reads it
		case rpc.SocketNamedPort<<rpc.KeyShift | bytesKind:
			c.Bytes()
			s.port = 0
		default:
			c.Skip()
		}
	}
}
