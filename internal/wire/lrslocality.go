package wire

import (
	"hash/maphash"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
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

// localityHead is what of a locality's statistics is read first.
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

// locality reads the statistics of one locality.
func (r *clusterReader) locality(encoded []byte, out *load.LocalityReport) bool {
	if r.plain(encoded, out) {
		return true
	}
	var h localityHead
	if !r.readLocality(encoded, &h) {
		return r.malformed()
	}
	if n := longest(h.merged); n > maxLocalityName {
		return r.refuse(RejectLocality, "locality: a part is %d bytes long, want at most %d", n, maxLocalityName)
	}
	if h.at == nil && !h.merged.IsZero() {
		whole := h.merged
		h.at = &whole
	}
	if h.priority > maxReportPriority {
		return r.refuse(RejectLocality, "priority: %d, want at most %d", h.priority, maxReportPriority)
	}
	ok := r.counter("total_issued_requests", h.issued) &&
		r.counter("total_successful_requests", h.succeeded) &&
		r.counter("total_error_requests", h.failed) &&
		r.gauge("total_requests_in_progress", h.inProgress)
	if !ok {
		return false
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
		out.Details = &r.room.details().details.take(1)[0]
		*out.Details = load.LocalityDetails{Metrics: metrics, Endpoints: endpoints}
	}
	return true
}

// plain reads statistics that hold a locality once, counters within their
// bounds and nothing else, which most do. It tells false for all others. How keys
// are read is repeated in three places: see long.
func (r *clusterReader) plain(encoded []byte, out *load.LocalityReport) bool {
	var (
		at                                              *isobar.Locality
		located                                         bool
		issued, succeeded, failed, inProgress, priority uint64
	)
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
		case statsLocality<<keyShift | byte(bytesKind):
			if located || v > uint64(len(rest)) {
				return false
			}
			if at, located = r.place(rest[:v]); !located {
				return false
			}
			rest = rest[v:]
		case statsSucceeded<<keyShift | byte(varintKind):
			succeeded = v
		case statsInProgress<<keyShift | byte(varintKind):
			inProgress = v
		case statsErrors<<keyShift | byte(varintKind):
			failed = v
		case statsIssued<<keyShift | byte(varintKind):
			issued = v
		case statsPriority<<keyShift | byte(varintKind):
			priority = v
		default:
			return false
		}
	}
	if priority > maxReportPriority || max(issued, succeeded, failed) > r.most || inProgress > maxReportGauge {
		return false
	}
	*out = load.LocalityReport{
		Locality: at, Issued: issued, Succeeded: succeeded, Errors: failed,
		InProgress: uint32(inProgress), Priority: uint16(priority), HasIssued: issued > 0,
	}
	return true
}

// readLocality reads the counters, and counts what needs another look.
func (r *clusterReader) readLocality(encoded []byte, h *localityHead) bool {
	c := cursor{rest: encoded}
	for c.next() {
		switch c.key {
		case statsLocality<<keyShift | bytesKind:
			if !r.locate(h, c.bytes()) {
				return false
			}
		case statsSucceeded<<keyShift | varintKind:
			h.succeeded = c.varint()
		case statsInProgress<<keyShift | varintKind:
			h.inProgress = c.varint()
		case statsErrors<<keyShift | varintKind:
			h.failed = c.varint()
		case statsIssued<<keyShift | varintKind:
			h.issued = c.varint()
		case statsPriority<<keyShift | varintKind:
			h.priority = uint32(c.varint()) //nolint:gosec // as protobuf reads it
		case statsMetrics<<keyShift | bytesKind:
			h.metrics++
			c.bytes()
		case statsEndpoints<<keyShift | bytesKind:
			h.endpoints++
			c.bytes()
		case statsCPU<<keyShift | bytesKind, statsMemory<<keyShift | bytesKind, statsApp<<keyShift | bytesKind:
			u := &h.unnamed[c.key>>keyShift-statsCPU]
			if !readMetric(c.bytes(), unnamedRequests, nil, &u.n, &u.total) {
				return false
			}
		default:
			c.skip()
		}
	}
	return !c.bad
}

// locate reads a locality. A field that occurs again adds to what it said
// before.
func (r *clusterReader) locate(h *localityHead, encoded []byte) (ok bool) {
	if h.parts++; h.parts == 1 {
		if h.at, ok = r.place(encoded); ok {
			return true
		}
	} else if h.at != nil {
		h.merged, h.at = *h.at, nil
	}
	return mergeLocality(&h.merged, encoded)
}

// place finds a locality; nil for the empty one. It tells false for bytes that
// are no locality and for one that is too long.
func (r *clusterReader) place(encoded []byte) (*isobar.Locality, bool) {
	if len(encoded) == 0 {
		return nil, true
	}
	seen := &r.seen[maphash.Bytes(r.seed, encoded)%uint64(len(r.seen))]
	if seen.encoded == string(encoded) {
		return seen.locality, true
	}
	r.share()
	l, ok := r.names.locality(encoded)
	if ok && l.encoded != "" {
		*seen = l
	}
	return l.locality, ok
}
