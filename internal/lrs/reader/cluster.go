package reader

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// clusterReader reads one ClusterStats after the other.
type clusterReader struct {
	names   *reportNames
	shared  bool // the names are locked for reading
	options *ReportOptions
	left    int      // clusters to read, this one included
	budget  int      // parts of clusters that may still come; see scan
	mixed   bool     // the services are not in the order of their names
	refused []string // services with an implausible entry
	err     error    // ends the whole message

	buffer *ReportBuffer

	// Localities that were read before, in this report or another; there are
	// few different ones.
	seed maphash.Seed
	seen [256]place

	// Services under their own names that were found in Known.
	usual     [2048]usual
	usualFrom Services
	other     usual // stands for all services that are not among them

	// Of the cluster at hand.
	service  string // empty without a name, or if the caller does not ask for it
	usually  *usual
	interval time.Duration // that seconds and most are worked out of
	seconds  float64       // the interval that rates are divided by
	most     uint64        // that a counter may say in these seconds
	parts    []part        // its localities; not those beyond their bound
}

// usual holds the names that reports repeat for a service.
type usual struct {
	name  string
	where [8]uint8 // its first localities, by their place in seen
}

// part is where a part of an encoded cluster begins and ends.
type part struct{ from, to uint32 }

// report reads all clusters, which countClusters has counted.
func (r *clusterReader) report(encoded []byte) ([]load.ServiceReport, error) {
	services, last := r.buffer.services[:0], ""
	for b := encoded; len(b) > 0; {
		var value []byte
		if value, b, _ = nextCluster(b); value == nil {
			continue
		}
		n := len(services)
		if n == cap(services) {
			services = slices.Grow(services, max(1, min(n, r.left)))
		}
		services = services[:n+1]
		if !r.cluster(value, &services[n]) {
			services = services[:n]
			if r.service != "" {
				r.refused = append(r.refused, r.service)
			}
		} else {
			r.mixed = r.mixed || r.service < last
			last = r.service
		}
		r.left--
		if r.err != nil {
			return nil, r.err
		}
	}
	r.buffer.services = services
	return services, nil
}

func (r *clusterReader) refuse(code rpc.RejectCode, format string, args ...any) bool {
	if r.options.Reject != nil {
		r.options.Reject(Rejection{Service: r.service, Code: code, Text: fmt.Sprintf(format, args...)})
	}
	return false
}

// malformed ends the whole message, as the generated decoder would.
func (r *clusterReader) malformed() bool {
	r.err = errReport
	return false
}

func (r *clusterReader) cluster(encoded []byte, out *load.ServiceReport) (ok bool) {
	var h clusterHead
	if !r.head(encoded, &h) {
		return r.malformed()
	}
	if ok, known := r.identify(&h); !ok || !known {
		if ok {
			r.service = ""
		}
		return false
	}
	out.Service, out.Localities = r.service, nil
	if out.Interval, ok = r.measured(&h); !ok {
		return false
	}
	if out.Dropped, out.DroppedBy, ok = r.drops(encoded, &h); !ok {
		return false
	}
	if h.localities > maxReportLocalities {
		return r.refuse(rpc.RejectSize, "upstream_locality_stats: %d localities, want at most %d", h.localities, maxReportLocalities)
	}
	if h.localities == 0 {
		return true
	}
	if !r.afford(h.localities) {
		return false
	}
	out.Localities = r.take(h.localities)
	for i, p := range r.parts {
		if !r.locality(encoded[p.from:p.to], i, &out.Localities[i]) {
			return false
		}
	}
	return true
}

// afford ends messages that are built to become much larger in memory.
func (r *clusterReader) afford(parts int) bool {
	if r.budget -= parts; r.budget < 0 {
		r.err = rpc.BadMessagef("cluster_stats", "more than %d parts in one report", rpc.MaxMessages)
	}
	return r.err == nil
}

// take returns memory for the localities of a cluster, to be written over. Clusters
// are mostly alike: the first one says how much all of them will need.
func (r *clusterReader) take(n int) []load.LocalityReport {
	s := &r.buffer.localities
	if s.used == 0 {
		s.expect(n * min(r.left, maxServices/2))
	}
	return s.take(n)
}

// identify returns the name of the cluster in EDS.
func (r *clusterReader) identify(h *clusterHead) (ok, known bool) {
	name := h.service
	if len(name) == 0 {
		name = h.name
	}
	r.service, r.usually = "", &r.other
	if len(name) == 0 || len(name) > maxReportName {
		return r.refuse(rpc.RejectName, "cluster_name: %d bytes long, want 1 to %d", len(name), maxReportName), false
	}
	if r.options.Known != nil {
		r.service, known = r.known(name)
		return true, known
	}
	if r.service, ok = r.name(name); !ok {
		return r.malformed(), false
	}
	return true, true
}

// known returns the name of a service that is known and that the client may report on.
func (r *clusterReader) known(name []byte) (service string, ok bool) {
	u := &r.usual[maphash.Bytes(r.seed, name)%uint64(len(r.usual))]
	if service = u.name; service != string(name) || service == "" {
		if service, ok = r.options.Known.Find(name); !ok {
			if r.options.Unknown != nil {
				r.options.Unknown(name)
			}
			return "", false
		}
		if service != string(name) {
			u = &r.other
		} else {
			u.name = service
		}
	}
	r.usually = u
	return service, r.options.May == nil || r.options.May(service)
}

// measured returns the interval that the client measured; 0 from clients that do not report one.
func (r *clusterReader) measured(h *clusterHead) (time.Duration, bool) {
	v := time.Duration(0)
	if h.interval && (h.seconds != int64(notMeasured/time.Second) || h.nanos != int64(notMeasured%time.Second)) {
		v = time.Duration(h.seconds)*time.Second + time.Duration(h.nanos)
		if s := int64(maxReportInterval / time.Second); h.seconds < 0 || h.seconds > s || h.nanos < 0 || h.nanos >= int64(time.Second) {
			d := &durationpb.Duration{Seconds: h.seconds, Nanos: int32(h.nanos)} //nolint:gosec // it was one
			if err := d.CheckValid(); err != nil {
				return 0, r.refuse(rpc.RejectInterval, "load_report_interval: %d s and %d ns are no duration", d.GetSeconds(), d.GetNanos())
			}
			v = d.AsDuration()
		}
		if v < 0 || v > maxReportInterval {
			return 0, r.refuse(rpc.RejectInterval, "load_report_interval: %v, want 0 to %v", v, maxReportInterval)
		}
	}
	if v != r.interval || r.most == 0 { // mostly that of the cluster before
		r.interval = v
		r.seconds = max(1, v.Seconds())
		r.most = uint64(maxReportRate * r.seconds)
	}
	return v, true
}

// drops counts the requests that the client dropped. The total of Envoy and of gRPC includes the
// categories; the categories of a client without a total are accepted, too. They are never added
// up: that would raise demand, and with it drops.
func (r *clusterReader) drops(encoded []byte, h *clusterHead) (uint64, []load.DropCount, bool) {
	if h.categories > maxReportDrops {
		return 0, nil, r.refuse(rpc.RejectSize, "dropped_requests: %d categories, want at most %d", h.categories, maxReportDrops)
	}
	if !r.counter("total_dropped_requests", h.dropped) {
		return 0, nil, false
	}
	if h.categories == 0 {
		return h.dropped, nil, true
	}
	var sum uint64
	by := make([]load.DropCount, 0, h.categories)
	r.buffer.beside += h.categories * dropBytes
	for c := (rpc.Cursor{Rest: encoded}); c.Next(); {
		if c.Key != clusterDroppedBy<<rpc.KeyShift|bytesKind {
			c.Skip()
			continue
		}
		d, ok := r.drop(c.Bytes())
		if !ok {
			return 0, nil, false
		}
		sum += d.Count // bounded by 64 times the largest counter
		by = append(by, d)
	}
	slices.SortStableFunc(by, func(a, b load.DropCount) int { return strings.Compare(a.Category, b.Category) })
	return max(h.dropped, sum), by, true
}

func (r *clusterReader) drop(encoded []byte) (out load.DropCount, ok bool) {
	var category []byte
	c := rpc.Cursor{Rest: encoded}
	for c.Next() {
		switch c.Key {
		case droppedCategory<<rpc.KeyShift | bytesKind:
			category = c.Bytes()
		case droppedCount<<rpc.KeyShift | varintKind:
			out.Count = c.Varint()
		default:
			c.Skip()
		}
	}
	if c.Bad {
		return out, r.malformed()
	}
	if !r.counter("dropped_requests.dropped_count", out.Count) {
		return out, false
	}
	if len(category) > maxReportName {
		return out, r.refuse(rpc.RejectName, "dropped_requests.category: %d bytes long, want at most %d", len(category), maxReportName)
	}
	if out.Category, ok = r.name(category); !ok {
		return out, r.malformed()
	}
	return out, true
}

// counter refuses counts that no client can reach, 2^64-1 among them.
func (r *clusterReader) counter(field string, n uint64) bool {
	if n > r.most {
		return r.refuse(rpc.RejectCounter, "%s: %d in %v s, want at most %v a second", field, n, r.seconds, maxReportRate)
	}
	return true
}

func (r *clusterReader) gauge(field string, n uint64) bool {
	if n > maxReportGauge {
		return r.refuse(rpc.RejectCounter, "%s: %d, want at most %v", field, n, maxReportGauge)
	}
	return true
}

// share locks the names for reading, until the end of the report.
func (r *clusterReader) share() {
	if !r.shared {
		r.names.mu.RLock()
		r.shared = true
	}
}

func (r *clusterReader) release() {
	if r.shared {
		r.shared = false
		r.names.mu.RUnlock()
	}
}

// name returns a string; false when it is not valid UTF-8.
func (r *clusterReader) name(encoded []byte) (string, bool) {
	r.share()
	s, made, ok := r.names.name(encoded)
	r.buffer.beside += made
	return s, ok
}

// address returns an address as host:port; empty for an address that is no socket.
func (r *clusterReader) address(encoded []byte) (string, bool) {
	r.share()
	s, made, ok := r.names.address(encoded)
	r.buffer.beside += made
	return s, ok
}

// clusterHead holds the fields of a cluster that are read first.
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
