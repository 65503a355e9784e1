package wire

import "github.com/isobar-xds/isobar/internal/load"

// maxEndpointRoom is how many endpoints of a locality get their memory before
// they are read.
const maxEndpointRoom = 256

// endpoints reads the statistics by endpoint, which clients send only when
// asked to. Addresses that are no sockets are skipped.
func (r *clusterReader) endpoints(encoded []byte, n int) ([]load.EndpointReport, bool) {
	if n > maxReportEndpoints {
		return nil, r.refuse(RejectSize, "upstream_endpoint_stats: %d endpoints, want at most %d", n, maxReportEndpoints)
	}
	if !r.afford(n) {
		return nil, false
	}
	out := make([]load.EndpointReport, 0, min(n, maxEndpointRoom))
	for c := (cursor{rest: encoded}); c.next(); {
		if c.key != statsEndpoints<<keyShift|bytesKind {
			c.skip()
			continue
		}
		var e load.EndpointReport
		if !r.endpoint(c.bytes(), &e) {
			return nil, r.malformed()
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
		out = append(out, e)
	}
	if len(out) == 0 {
		return nil, true
	}
	return out, true
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
