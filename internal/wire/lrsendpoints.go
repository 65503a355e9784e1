package wire

import "github.com/isobar-xds/isobar/internal/load"

// endpoints reads the statistics by endpoint, which clients send only when
// asked to. Addresses that are no sockets are skipped.
func (r *clusterReader) endpoints(encoded []byte, n int) ([]load.EndpointReport, bool) {
	if n > maxReportEndpoints {
		return nil, r.refuse(RejectSize, "upstream_endpoint_stats: %d endpoints, want at most %d", n, maxReportEndpoints)
	}
	if !r.afford(n) {
		return nil, false
	}
	room := r.room.details().endpoints.take(n)
	out := room[:0]
	for c := (cursor{rest: encoded}); c.next(); {
		if c.key != statsEndpoints<<keyShift|bytesKind {
			c.skip()
			continue
		}
		e := &room[len(out)]
		if b := c.bytes(); !r.plainEndpoint(b, e) {
			*e = load.EndpointReport{}
			if !r.endpoint(b, e) {
				return nil, r.malformed()
			}
		}
		if e.Address == "" {
			continue
		}
		ok := r.counter("upstream_endpoint_stats.total_issued_requests", e.Issued) &&
			r.counter("upstream_endpoint_stats.total_successful_requests", e.Succeeded) &&
			r.counter("upstream_endpoint_stats.total_error_requests", e.Errors) &&
			r.gauge("upstream_endpoint_stats.total_requests_in_progress", e.InProgress)
		if !ok {
			return nil, false
		}
		out = room[:len(out)+1]
	}
	if len(out) == 0 {
		return nil, true
	}
	return out, true
}

// plainEndpoint reads statistics that hold an address once, counters and
// nothing else, which nearly all do. It tells false for all others. How keys are
// read is repeated in three places: see long.
func (r *clusterReader) plainEndpoint(encoded []byte, out *load.EndpointReport) bool {
	var address []byte
	var issued, succeeded, failed, inProgress uint64
	for rest := encoded; len(rest) > 0; {
		var v uint64
		n := 2
		if len(rest) > 1 && rest[1] < maxShort {
			v = uint64(rest[1])
		} else if v, n = long(rest); n == 0 {
			return false
		}
		key := rest[0]
		rest = rest[n:]
		switch key {
		case endpointAddress<<keyShift | byte(bytesKind):
			if address != nil || v > uint64(len(rest)) {
				return false
			}
			address = rest[:v]
			rest = rest[v:]
		case endpointSucceeded<<keyShift | byte(varintKind):
			succeeded = v
		case endpointInProgress<<keyShift | byte(varintKind):
			inProgress = v
		case endpointErrors<<keyShift | byte(varintKind):
			failed = v
		case endpointIssued<<keyShift | byte(varintKind):
			issued = v
		default:
			return false
		}
	}
	r.share()
	text, ok := r.names.address(address)
	if !ok {
		return false
	}
	*out = load.EndpointReport{Address: text, Issued: issued, Succeeded: succeeded, Errors: failed, InProgress: inProgress}
	return true
}

func (r *clusterReader) endpoint(encoded []byte, out *load.EndpointReport) bool {
	var whole socket // when the address comes in several parts
	var first []byte
	parts := 0
	c := cursor{rest: encoded}
	for c.next() {
		switch c.key {
		case endpointAddress<<keyShift | bytesKind:
			b := c.bytes()
			if parts++; parts == 1 {
				first = b
				break
			}
			if (parts == 2 && !whole.merge(first)) || !whole.merge(b) {
				return false
			}
		case endpointSucceeded<<keyShift | varintKind:
			out.Succeeded = c.varint()
		case endpointInProgress<<keyShift | varintKind:
			out.InProgress = c.varint()
		case endpointErrors<<keyShift | varintKind:
			out.Errors = c.varint()
		case endpointIssued<<keyShift | varintKind:
			out.Issued = c.varint()
		default:
			c.skip()
		}
	}
	if c.bad {
		return false
	}
	ok := true
	switch parts {
	case 0:
	case 1:
		r.share()
		out.Address, ok = r.names.address(first)
	default:
		out.Address = whole.text()
	}
	return ok
}
