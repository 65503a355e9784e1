package wire

import (
	"bytes"
	"math"
	"slices"
	"strings"

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
	locality isobar.Locality
	located  bool // there is one
	unnamed  [3]struct {
		n     uint64
		total float64
	} // CPU, memory, application
	metrics   int
	endpoints int
}

func (r *clusterReader) locality(encoded []byte, out *load.LocalityReport) bool {
	var h localityHead
	if !r.readLocality(encoded, &h, out) {
		return r.malformed()
	}
	if n := longest(h.locality); n > maxLocalityName {
		return r.refuse(RejectLocality, "locality: a part is %d bytes long, want at most %d", n, maxLocalityName)
	}
	out.Locality = h.locality
	out.HasIssued = out.Issued > 0
	if out.Priority > maxReportPriority {
		return r.refuse(RejectLocality, "priority: %d, want at most %d", out.Priority, maxReportPriority)
	}
	ok := r.counter("total_issued_requests", out.Issued) &&
		r.counter("total_successful_requests", out.Succeeded) &&
		r.counter("total_error_requests", out.Errors) &&
		r.gauge("total_requests_in_progress", out.InProgress)
	if !ok {
		return false
	}
	if out.Metrics = r.metrics(encoded, &h); r.err != nil {
		return false
	}
	if !r.options.Endpoints || h.endpoints == 0 {
		return true
	}
	out.Endpoints, ok = r.endpoints(encoded, h.endpoints)
	return ok
}

// readLocality reads the counters, and counts what needs another look.
func (r *clusterReader) readLocality(encoded []byte, h *localityHead, out *load.LocalityReport) bool {
	c := cursor{rest: encoded}
	for c.next() {
		switch c.key {
		case statsLocality<<keyShift | bytesKind:
			if !r.locate(h, c.bytes()) {
				return false
			}
		case statsSucceeded<<keyShift | varintKind:
			out.Succeeded = c.varint()
		case statsInProgress<<keyShift | varintKind:
			out.InProgress = c.varint()
		case statsErrors<<keyShift | varintKind:
			out.Errors = c.varint()
		case statsIssued<<keyShift | varintKind:
			out.Issued = c.varint()
		case statsPriority<<keyShift | varintKind:
			out.Priority = uint32(c.varint()) //nolint:gosec // as protobuf reads it
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
	if h.located {
		return mergeLocality(&h.locality, encoded)
	}
	h.located = true
	if len(encoded) == 0 {
		return true
	}
	seen := &r.seen[(len(encoded)+int(encoded[len(encoded)-1]))%len(r.seen)]
	if !bytes.Equal(seen.encoded, encoded) {
		if seen.locality, ok = r.names.locality(encoded); !ok {
			return false
		}
		seen.encoded = encoded
	}
	h.locality = seen.locality
	return true
}

// readMetric reads a sum of a metric, named or not; the count stands in field
// first, and the total behind it.
func readMetric(encoded []byte, first uint64, name *[]byte, n *uint64, total *float64) bool {
	c := cursor{rest: encoded}
	for c.next() {
		switch {
		case c.key == first<<keyShift|varintKind:
			*n = c.varint()
		case c.key == (first+1)<<keyShift|doubleKind:
			*total = c.double()
		case name != nil && c.key == metricName<<keyShift|bytesKind:
			*name = c.bytes()
		default:
			c.skip()
		}
	}
	return !c.bad
}

// namedMetrics is what clients put before the names of ORCA's named metrics
// once they are told which ones to propagate.
const namedMetrics = "named_metrics."

// metrics reads the ORCA metrics, sorted by name. They come from backends: a
// bad one says nothing about the client's counters and goes alone.
func (r *clusterReader) metrics(encoded []byte, h *localityHead) []load.MetricSum {
	var out []load.MetricSum
	for i, name := range [...]string{load.MetricCPU, load.MetricMemory, load.MetricApplication} {
		out = r.metric(out, name, h.unnamed[i].n, h.unnamed[i].total)
	}
	if h.metrics == 0 {
		return out
	}
	if h.metrics > maxReportMetrics {
		r.refuse(RejectSize, "load_metric_stats: %d metrics, want at most %d", h.metrics, maxReportMetrics)
		return out
	}
	for c := (cursor{rest: encoded}); c.next(); {
		if c.key != statsMetrics<<keyShift|bytesKind {
			c.skip()
			continue
		}
		var (
			name  []byte
			n     uint64
			total float64
		)
		if !readMetric(c.bytes(), metricRequests, &name, &n, &total) {
			r.malformed()
			return nil
		}
		text, ok := r.names.name(name)
		if !ok {
			r.malformed()
			return nil
		}
		out = r.metric(out, strings.TrimPrefix(text, namedMetrics), n, total)
	}
	return out
}

func (r *clusterReader) metric(to []load.MetricSum, name string, n uint64, total float64) []load.MetricSum {
	switch {
	case n == 0 && total == 0:
		return to
	case name == "" || len(name) > maxReportName:
		r.refuse(RejectMetric, "load_metric_stats.metric_name: %d bytes long, want 1 to %d", len(name), maxReportName)
		return to
	case n == 0 || math.IsNaN(total) || math.IsInf(total, 0) || math.Abs(total) > maxMetricMean*float64(n):
		r.refuse(RejectMetric, "%s: a total of %v over %d requests", name, total, n)
		return to
	case float64(n) > maxReportRate*r.seconds:
		r.refuse(RejectMetric, "%s: %d requests, want at most %v a second", name, n, maxReportRate)
		return to
	case utilizationMetric(name) && (total < 0 || total > maxUtilization*float64(n)):
		r.refuse(RejectMetric, "%s: a mean of %v, want 0 to %v", name, total/float64(n), maxUtilization)
		return to
	}
	i, found := slices.BinarySearchFunc(to, name, func(m load.MetricSum, n string) int { return strings.Compare(m.Name, n) })
	if !found {
		return slices.Insert(to, i, load.MetricSum{Name: name, Requests: n, Total: total})
	}
	to[i].Requests += n
	to[i].Total += total
	return to
}

func utilizationMetric(name string) bool {
	return name == load.MetricCPU || name == load.MetricMemory || name == load.MetricApplication
}

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
		out.Address, ok = r.names.address(first)
	default:
		out.Address = whole.text()
	}
	return ok
}
