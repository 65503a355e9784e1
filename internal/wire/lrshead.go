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

// part notes a locality to be read when the rest of the cluster is known.
func (r *clusterReader) part(h *clusterHead, encoded []byte) {
	if h.localities++; h.localities <= maxReportLocalities {
		r.parts = append(r.parts, encoded)
	}
}

// forget lets go of the localities, whose bytes are lent.
func (r *clusterReader) forget() {
	clear(r.parts)
	r.parts = r.parts[:0]
}

// head reads all of a cluster but its localities and drops. What clients write
// has short keys and lengths; whatever else it may be, readHead reads it. How keys
// are read is repeated in three places: see long.
func (r *clusterReader) head(encoded []byte, h *clusterHead) bool {
	r.forget()
	for rest := encoded; len(rest) > 0; {
		var v uint64
		n := 2
		if len(rest) > 1 && rest[1] < maxShort {
			v = uint64(rest[1])
		} else if v, n = long(rest); n == 0 {
			return r.readHead(encoded, h)
		}
		key := rest[0]
		rest = rest[n:]
		if key == clusterDropped<<keyShift|byte(varintKind) {
			h.dropped = v
			continue
		}
		if v > uint64(len(rest)) {
			return r.readHead(encoded, h)
		}
		value := rest[:v]
		rest = rest[v:]
		switch key {
		case clusterName<<keyShift | byte(bytesKind):
			h.name = value
		case clusterService<<keyShift | byte(bytesKind):
			h.service = value
		case clusterLocalities<<keyShift | byte(bytesKind):
			r.part(h, value)
		case clusterDroppedBy<<keyShift | byte(bytesKind):
			h.categories++
		case clusterInterval<<keyShift | byte(bytesKind):
			h.interval = true
			if !h.duration(value) {
				return false
			}
		default:
			return r.readHead(encoded, h)
		}
	}
	return true
}

// readHead is head for whatever the bytes may be.
func (r *clusterReader) readHead(encoded []byte, h *clusterHead) bool {
	*h = clusterHead{}
	r.forget()
	c := cursor{rest: encoded}
	for c.next() {
		switch c.key {
		case clusterName<<keyShift | bytesKind:
			h.name = c.bytes()
		case clusterService<<keyShift | bytesKind:
			h.service = c.bytes()
		case clusterLocalities<<keyShift | bytesKind:
			r.part(h, c.bytes())
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
