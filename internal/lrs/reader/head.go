package reader

import "github.com/isobar-xds/isobar/internal/rpc"

// clusterHead is what of a cluster is read first.
type clusterHead struct {
	name, service  []byte
	dropped        uint64
	seconds, nanos int64 // of the interval
	interval       bool
	localities     int
	categories     int
}

// part notes a locality to be read when the rest of the cluster is known: size
// bytes that end where so many are left.
func (r *clusterReader) part(h *clusterHead, encoded []byte, size, left int) {
	if h.localities++; h.localities <= maxReportLocalities {
		to := len(encoded) - left
		r.parts = append(r.parts, part{from: uint32(to - size), to: uint32(to)}) //nolint:gosec // messages are far smaller
	}
}

// head reads all of a cluster but its localities and drops.
func (r *clusterReader) head(encoded []byte, h *clusterHead) bool {
	r.parts = r.parts[:0]
	var value []byte
	b := encoded
	h.name, b = rpc.NextBytes(b, clusterName<<rpc.KeyShift|byte(bytesKind))
	for {
		if value, b = rpc.NextBytes(b, clusterLocalities<<rpc.KeyShift|byte(bytesKind)); value == nil {
			break
		}
		r.part(h, encoded, len(value), len(b))
	}
	if value, b = rpc.NextBytes(b, clusterInterval<<rpc.KeyShift|byte(bytesKind)); value != nil {
		h.interval = true
		var v rpc.Counters
		if fields, ok := v.Read(value); !ok || fields&^(1<<durationSeconds|1<<durationNanos) != 0 {
			return r.readHead(encoded, h)
		}
		h.seconds, h.nanos = int64(v[durationSeconds]), int64(int32(v[durationNanos])) //nolint:gosec // two's complement, as protobuf reads it
	}
	h.service, b = rpc.NextBytes(b, clusterService<<rpc.KeyShift|byte(bytesKind))
	return len(b) == 0 || r.readHead(encoded, h)
}

// readHead is head for whatever the bytes may be.
func (r *clusterReader) readHead(encoded []byte, h *clusterHead) bool {
	*h = clusterHead{}
	r.parts = r.parts[:0]
	c := rpc.Cursor{Rest: encoded}
	for c.Next() {
		switch c.Key {
		case clusterName<<rpc.KeyShift | bytesKind:
			h.name = c.Bytes()
		case clusterService<<rpc.KeyShift | bytesKind:
			h.service = c.Bytes()
		case clusterLocalities<<rpc.KeyShift | bytesKind:
			size := len(c.Bytes())
			r.part(h, encoded, size, len(c.Rest))
		case clusterDropped<<rpc.KeyShift | varintKind:
			h.dropped = c.Varint()
		case clusterDroppedBy<<rpc.KeyShift | bytesKind:
			h.categories++
			c.Bytes()
		case clusterInterval<<rpc.KeyShift | bytesKind:
			h.interval = true
			if !h.duration(c.Bytes()) {
				return false
			}
		default:
			c.Skip()
		}
	}
	return !c.Bad
}

func (h *clusterHead) duration(encoded []byte) bool {
	c := rpc.Cursor{Rest: encoded}
	for c.Next() {
		switch c.Key {
		case durationSeconds<<rpc.KeyShift | varintKind:
			h.seconds = int64(c.Varint()) //nolint:gosec // two's complement
		case durationNanos<<rpc.KeyShift | varintKind:
			h.nanos = int64(int32(c.Varint())) //nolint:gosec // two's complement, as protobuf reads it
		default:
			c.Skip()
		}
	}
	return !c.Bad
}
