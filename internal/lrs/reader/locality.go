package reader

import (
	"hash/maphash"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// Fields of UpstreamLocalityStats, UpstreamEndpointStats and the two kinds of
// metrics.
const (
	statsLocality   = 1
	statsSucceeded  = 2
	statsInProgress = 3
	statsErrors     = 4
	statsMetrics    = 5
	statsPriority   = 6
	statsEndpoints  = 7
	statsIssued     = 8
	statsCPU        = 12
	statsMemory     = 13
	statsApp        = 14

	endpointAddress    = 1
	endpointSucceeded  = 2
	endpointInProgress = 3
	endpointErrors     = 4
	endpointIssued     = 7

	metricName     = 1
	metricRequests = 2
	metricTotal    = 3

	unnamedRequests = 1
	unnamedTotal    = 2
)

// localityHead holds the fields of a locality's statistics that are read first.
type localityHead struct {
	at         *isobar.Locality // nil: none, or see merged
	parts      int              // of it
	merged     isobar.Locality  // of several parts, or of one that can't be remembered
	issued     uint64
	succeeded  uint64
	failed     uint64
	inProgress uint64
	priority   uint32
	unnamed    [3]struct {
		n     uint64
		total float64
	} // CPU, memory, application
	metrics   int
	endpoints int
}

// locality reads the statistics of one locality, the i-th of its cluster.
func (r *clusterReader) locality(encoded []byte, i int, out *load.LocalityReport) bool {
	return r.plain(encoded, i, out) || r.anyLocality(encoded, out)
}

// anyLocality is locality for whatever the bytes may be.
func (r *clusterReader) anyLocality(encoded []byte, out *load.LocalityReport) bool {
	var h localityHead
	if !r.readLocality(encoded, &h) {
		return r.malformed()
	}
	if n := longest(h.merged); n > rpc.MaxLocalityName {
		return r.refuse(rpc.RejectLocality, "locality: a part is %d bytes long, want at most %d", n, rpc.MaxLocalityName)
	}
	if h.at == nil && !h.merged.IsZero() {
		whole := h.merged
		h.at = &whole
		r.buffer.beside += placeBytes(&whole)
	}
	if h.priority > maxReportPriority {
		return r.refuse(rpc.RejectLocality, "priority: %d, want at most %d", h.priority, maxReportPriority)
	}
	ok := r.counter("total_issued_requests", h.issued) &&
		r.counter("total_successful_requests", h.succeeded) &&
		r.counter("total_error_requests", h.failed)
	if !ok {
		return false
	}
	if !r.gauge("total_requests_in_progress", h.inProgress) {
		if h.issued == 0 && r.options.Agent != load.AgentGRPC {
			return false // the rate would be worked out from it
		}
		h.inProgress = 0
	}
	*out = load.LocalityReport{
		Locality: h.at, Issued: h.issued, Succeeded: h.succeeded, Errors: h.failed,
		InProgress: uint32(h.inProgress), Priority: uint16(h.priority), HasIssued: h.issued > 0, //nolint:gosec // bounded
	}
	metrics := r.metrics(encoded, &h)
	if r.err != nil {
		return false
	}
	var endpoints []load.EndpointReport
	if r.options.Endpoints && h.endpoints > 0 {
		if endpoints, ok = r.endpoints(encoded, h.endpoints); !ok {
			return false
		}
	}
	if metrics != nil || endpoints != nil {
		out.Details = &r.buffer.details().details.take(1)[0]
		*out.Details = load.LocalityDetails{Metrics: metrics, Endpoints: endpoints}
	}
	return true
}

// plain reads statistics that hold a locality, counters within their bounds and
// nothing else, which most do. It tells false for all others.
func (r *clusterReader) plain(b []byte, i int, out *load.LocalityReport) bool {
	const known = 1<<statsSucceeded | 1<<statsInProgress | 1<<statsErrors | 1<<statsPriority | 1<<statsIssued
	encoded, b := rpc.NextBytes(b, statsLocality<<rpc.KeyShift|byte(bytesKind))
	var v rpc.Counters
	if fields, ok := v.Read(b); !ok || fields&^known != 0 {
		return false
	}
	if max(v[statsIssued], v[statsSucceeded], v[statsErrors]) > r.most || v[statsPriority] > maxReportPriority || v[statsInProgress] > maxReportGauge {
		return false
	}
	at, ok := r.place(encoded, &r.usually.where[i%len(r.usually.where)])
	if !ok {
		return false
	}
	// One by one: all of it at once is written twice.
	out.Locality, out.Details = at, nil
	out.Issued, out.Succeeded, out.Errors = v[statsIssued], v[statsSucceeded], v[statsErrors]
	out.InProgress, out.Priority, out.HasIssued = uint32(v[statsInProgress]), uint16(v[statsPriority]), v[statsIssued] > 0 //nolint:gosec // bounded
	return true
}

// readLocality reads the counters, and counts the fields that need another look.
func (r *clusterReader) readLocality(encoded []byte, h *localityHead) bool {
	c := rpc.Cursor{Rest: encoded}
	for c.Next() {
		switch c.Key {
		case statsLocality<<rpc.KeyShift | bytesKind:
			if !r.locate(h, c.Bytes()) {
				return false
			}
		case statsSucceeded<<rpc.KeyShift | varintKind:
			h.succeeded = c.Varint()
		case statsInProgress<<rpc.KeyShift | varintKind:
			h.inProgress = c.Varint()
		case statsErrors<<rpc.KeyShift | varintKind:
			h.failed = c.Varint()
		case statsIssued<<rpc.KeyShift | varintKind:
			h.issued = c.Varint()
		case statsPriority<<rpc.KeyShift | varintKind:
			h.priority = uint32(c.Varint()) //nolint:gosec // as protobuf reads it
		case statsMetrics<<rpc.KeyShift | bytesKind:
			h.metrics++
			c.Bytes()
		case statsEndpoints<<rpc.KeyShift | bytesKind:
			h.endpoints++
			c.Bytes()
		case statsCPU<<rpc.KeyShift | bytesKind, statsMemory<<rpc.KeyShift | bytesKind, statsApp<<rpc.KeyShift | bytesKind:
			u := &h.unnamed[c.Key>>rpc.KeyShift-statsCPU]
			if !readMetric(c.Bytes(), unnamedRequests, nil, &u.n, &u.total) {
				return false
			}
		default:
			c.Skip()
		}
	}
	return !c.Bad
}

// locate reads a locality. A field that occurs again adds to its earlier value.
func (r *clusterReader) locate(h *localityHead, encoded []byte) (ok bool) {
	if h.parts++; h.parts == 1 {
		if h.at, ok = r.place(encoded, &r.usually.where[0]); ok {
			return true
		}
	} else if h.at != nil {
		h.merged, h.at = *h.at, nil
	}
	return mergeLocality(&h.merged, encoded)
}

// place finds a locality; nil for the empty one. It tells false for bytes that
// are no locality and for one that is too long. Where it was found the last time
// is looked at first, and noted.
func (r *clusterReader) place(encoded []byte, where *uint8) (*isobar.Locality, bool) {
	if len(encoded) == 0 {
		return nil, true
	}
	seen := &r.seen[*where]
	if seen.encoded == string(encoded) {
		return seen.locality, true
	}
	*where = uint8(maphash.Bytes(r.seed, encoded)) //nolint:gosec // its last bits
	if seen = &r.seen[*where]; seen.encoded == string(encoded) {
		return seen.locality, true
	}
	r.share()
	l, made, ok := r.names.locality(encoded)
	r.buffer.beside += made
	if ok && l.encoded != "" {
		*seen = l
	}
	return l.locality, ok
}
