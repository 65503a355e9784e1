package wire

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
	h.name, b = nextBytes(b, clusterName<<keyShift|byte(bytesKind))
	for {
		if value, b = nextBytes(b, clusterLocalities<<keyShift|byte(bytesKind)); value == nil {
			break
		}
		r.part(h, encoded, len(value), len(b))
	}
	if value, b = nextBytes(b, clusterInterval<<keyShift|byte(bytesKind)); value != nil {
		h.interval = true
		var v counters
		if fields, ok := v.read(value); !ok || fields&^(1<<durationSeconds|1<<durationNanos) != 0 {
			return r.readHead(encoded, h)
		}
		h.seconds, h.nanos = int64(v[durationSeconds]), int64(int32(v[durationNanos])) //nolint:gosec // two's complement, as protobuf reads it
	}
	h.service, b = nextBytes(b, clusterService<<keyShift|byte(bytesKind))
	return len(b) == 0 || r.readHead(encoded, h)
}

// readHead is head for whatever the bytes may be.
func (r *clusterReader) readHead(encoded []byte, h *clusterHead) bool {
	*h = clusterHead{}
	r.parts = r.parts[:0]
	c := cursor{rest: encoded}
	for c.next() {
		switch c.key {
		case clusterName<<keyShift | bytesKind:
			h.name = c.bytes()
		case clusterService<<keyShift | bytesKind:
			h.service = c.bytes()
		case clusterLocalities<<keyShift | bytesKind:
			size := len(c.bytes())
			r.part(h, encoded, size, len(c.rest))
		case clusterDropped<<keyShift | varintKind:
			h.dropped = c.varint()
		case clusterDroppedBy<<keyShift | bytesKind:
			h.categories++
			c.bytes()
		case clusterInterval<<keyShift | bytesKind:
			h.interval = true
			if !h.duration(c.bytes()) {
				return false
			}
		default:
			c.skip()
		}
	}
	return !c.bad
}

func (h *clusterHead) duration(encoded []byte) bool {
	c := cursor{rest: encoded}
	for c.next() {
		switch c.key {
		case durationSeconds<<keyShift | varintKind:
			h.seconds = int64(c.varint()) //nolint:gosec // two's complement
		case durationNanos<<keyShift | varintKind:
			h.nanos = int64(int32(c.varint())) //nolint:gosec // two's complement, as protobuf reads it
		default:
			c.skip()
		}
	}
	return !c.bad
}
