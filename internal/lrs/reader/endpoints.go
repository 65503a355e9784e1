package reader

import (
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// endpoints reads the statistics by endpoint, which clients send only when
// asked to. Addresses that are no sockets are skipped.
func (r *clusterReader) endpoints(encoded []byte, n int) ([]load.EndpointReport, bool) {
	if n > maxReportEndpoints {
		return nil, r.refuse(rpc.RejectSize, "upstream_endpoint_stats: %d endpoints, want at most %d", n, maxReportEndpoints)
	}
	if !r.afford(n) {
		return nil, false
	}
	slots := r.buffer.details().endpoints.take(n)
	out := slots[:0]
	for c := (rpc.Cursor{Rest: encoded}); c.Next(); {
		if c.Key != statsEndpoints<<rpc.KeyShift|bytesKind {
			c.Skip()
			continue
		}
		e := &slots[len(out)]
		if b := c.Bytes(); !r.plainEndpoint(b, e) {
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
		out = slots[:len(out)+1]
	}
	if len(out) == 0 {
		return nil, true
	}
	return out, true
}

// plainEndpoint reads statistics that hold an address, counters and nothing else,
// which nearly all do. It tells false for all others.
func (r *clusterReader) plainEndpoint(b []byte, out *load.EndpointReport) bool {
	const known = 1<<endpointSucceeded | 1<<endpointInProgress | 1<<endpointErrors | 1<<endpointIssued
	address, b := rpc.NextBytes(b, endpointAddress<<rpc.KeyShift|byte(bytesKind))
	var v rpc.Counters
	if fields, ok := v.Read(b); !ok || fields&^known != 0 {
		return false
	}
	text, ok := r.address(address)
	if !ok {
		return false
	}
	out.Address, out.Issued, out.Succeeded = text, v[endpointIssued], v[endpointSucceeded]
	out.Errors, out.InProgress = v[endpointErrors], v[endpointInProgress]
	return true
}

func (r *clusterReader) endpoint(encoded []byte, out *load.EndpointReport) bool {
	var whole socket // when the address comes in several parts
	var first []byte
	parts := 0
	c := rpc.Cursor{Rest: encoded}
	for c.Next() {
		switch c.Key {
		case endpointAddress<<rpc.KeyShift | bytesKind:
			b := c.Bytes()
			if parts++; parts == 1 {
				first = b
				break
			}
			if (parts == 2 && !whole.merge(first)) || !whole.merge(b) {
				return false
			}
		case endpointSucceeded<<rpc.KeyShift | varintKind:
			out.Succeeded = c.Varint()
		case endpointInProgress<<rpc.KeyShift | varintKind:
			out.InProgress = c.Varint()
		case endpointErrors<<rpc.KeyShift | varintKind:
			out.Errors = c.Varint()
		case endpointIssued<<rpc.KeyShift | varintKind:
			out.Issued = c.Varint()
		default:
			c.Skip()
		}
	}
	if c.Bad {
		return false
	}
	ok := true
	switch parts {
	case 0:
	case 1:
		out.Address, ok = r.address(first)
	default:
		out.Address = whole.text()
		r.buffer.beside += len(out.Address)
	}
	return ok
}
