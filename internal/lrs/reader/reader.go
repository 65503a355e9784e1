package reader

import (
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// Bounds on a load report. Real clients stay far below.
const (
	maxReportClusters   = 20_000 // in a message
	maxReportLocalities = 1_024  // in a cluster
	maxReportDrops      = 64     // categories in a cluster
	maxReportMetrics    = 64     // named metrics in a locality
	maxReportEndpoints  = 16_384 // in a locality
	maxReportName       = 1_024  // bytes of a cluster, category or metric name
	maxReportPriority   = 128

	// maxReportInterval is the longest stretch of time that a report may cover.
	maxReportInterval = 24 * time.Hour
	// notMeasured is grpc-go's interval in the first report of a stream, up to 1.64 at least: the
	// time since the year 1, truncated. The server's clock measures such a report. 1.50 opens a
	// stream again at each assignment, so that hardly any other report came while weights change.
	notMeasured = time.Duration(math.MaxInt64)
	// maxReportRate is more than one client can send, requests/s.
	maxReportRate = 1e8
	// maxReportGauge is more than one client can have in progress, requests.
	maxReportGauge = 1e9
	// maxMetricMean is more than a metric can be, whatever its unit.
	maxMetricMean = 1e15
	// maxUtilization is more than a utilization can be: 100 times full.
	maxUtilization = 100.0
)

// RejectCodes lists all reasons.
func RejectCodes() []rpc.RejectCode {
	return []rpc.RejectCode{rpc.RejectName, rpc.RejectInterval, rpc.RejectCounter, rpc.RejectMetric, rpc.RejectLocality, rpc.RejectSize}
}

// Rejection names a part of a load report that was left out.
type Rejection struct {
	Service string // empty when it has no name
	Code    rpc.RejectCode
	Text    string // names the field and the value
}

// ReportReader reads load reports straight from the wire, without decoding
// them into messages first. One reader serves all streams: it remembers the
// names that reports repeat. The zero value is ready to use.
type ReportReader struct {
	names reportNames
	free  sync.Pool // of *clusterReader
}

// ReportOptions say how a report is read.
type ReportOptions struct {
	Agent   load.Agent // the kind of client
	Arrived time.Time
	// Known has the services that reports may be about; others are left
	// out. nil = all are known.
	Known Services
	// May reports whether this client may report on a known service; if not the service is left
	// out like an unknown one. nil = on all.
	May func(service string) bool
	// Endpoints keeps the statistics by endpoint.
	Endpoints bool
	// Buffer is where the report is put; nil = new memory.
	Buffer *ReportBuffer
	// Unknown gets the names of clusters that are no known services. The bytes are lent for the
	// call. nil = it is not called.
	Unknown func(cluster []byte)
	// Reject gets each implausible entry, which is left out; may be nil.
	Reject func(Rejection)
}

// Services is a set of services, by their names in reports. Its type has to be comparable.
type Services interface {
	// Find returns the name of a service. It is the same at every call, for a
	// value that is equal (==) to the one it was asked of.
	Find(name []byte) (service string, ok bool)
}

// Fields of LoadStatsRequest: the node, and the statistics by cluster.
const (
	ReportNode     protowire.Number = 1
	ReportClusters protowire.Number = 2
)

// Fields of ClusterStats, DroppedRequests and Duration.
const (
	clusterName       = 1
	clusterLocalities = 2
	clusterDropped    = 3
	clusterInterval   = 4
	clusterDroppedBy  = 5
	clusterService    = 6

	droppedCategory = 1
	droppedCount    = 2

	durationSeconds = 1
	durationNanos   = 2
)

// Wire types, as they stand in keys.
const (
	varintKind = uint64(protowire.VarintType)
	doubleKind = uint64(protowire.Fixed64Type)
	bytesKind  = uint64(protowire.BytesType)
)

// Read reads an encoded LoadStatsRequest. It leaves out clusters that are unknown services, and
// implausible parts, which go to Reject: a cluster with its counters, or a single metric, or the
// number of requests in progress of a client that reports issued requests; the rest stays. Idle
// clusters without localities are kept: they say that nothing was sent. The error is for messages
// that can't be decoded or are too large to look at. Nothing of encoded is kept.
func (r *ReportReader) Read(encoded []byte, o *ReportOptions) (out load.Report, err error) {
	out = load.Report{Arrived: o.Arrived}
	clusters, ok := countClusters(encoded)
	if !ok {
		return out, errReport
	}
	if clusters > maxReportClusters {
		return out, rpc.BadMessagef("cluster_stats", "%d clusters, want at most %d", clusters, maxReportClusters)
	}
	cr := r.begin(o, clusters)
	defer r.end(cr)
	services, err := cr.report(encoded)
	if err != nil {
		return out, err
	}
	// Clients key by cluster and service; here only the service matters. Its
	// entries stay apart, since their clocks may differ, but stand together.
	if cr.mixed {
		slices.SortStableFunc(services, func(a, b load.ServiceReport) int { return strings.Compare(a.Service, b.Service) })
	}
	slices.Sort(cr.refused)
	// A copy: the list may have the same name thousands of times.
	out.Services, out.Refused = services, slices.Clone(slices.Compact(cr.refused))
	cr.buffer.beside += len(out.Refused) * nameBytes
	return out, nil
}

// countClusters returns the number of clusters, and whether all of encoded is fields.
func countClusters(encoded []byte) (n int, ok bool) {
	for b := encoded; len(b) > 0; {
		var value []byte
		if value, b, ok = nextCluster(b); !ok {
			return 0, false
		}
		if value != nil {
			n++
		}
	}
	return n, true
}

// nextCluster returns the cluster that b begins with, nil if it is another field, and the rest of
// b; false if b begins with no field.
func nextCluster(b []byte) (value, rest []byte, ok bool) {
	const key = uint64(ReportClusters)<<rpc.KeyShift | bytesKind
	if value, rest = rpc.NextBytes(b, byte(key)); value != nil {
		return value, rest, true
	}
	c := rpc.Cursor{Rest: b}
	if c.Next() && c.Key == key {
		value = c.Bytes()
	} else {
		c.Skip()
	}
	return value, c.Rest, !c.Bad
}

// begin prepares the state that reads one report. It is large, and remembers the parts read last,
// so the next stream uses it again: it stays in the processor's cache, which the stacks of many
// streams do not.
func (r *ReportReader) begin(o *ReportOptions, clusters int) *clusterReader {
	cr, _ := r.free.Get().(*clusterReader)
	if cr == nil {
		cr = &clusterReader{seed: maphash.MakeSeed()}
	}
	cr.names, cr.options, cr.buffer = &r.names, o, o.Buffer
	if cr.buffer == nil {
		cr.buffer = &ReportBuffer{}
	}
	if cr.usualFrom != o.Known {
		cr.usual, cr.usualFrom = [len(cr.usual)]usual{}, o.Known
	}
	cr.left, cr.budget, cr.mixed, cr.err = clusters, rpc.MaxMessages, false, nil
	cr.buffer.begin(clusters)
	return cr
}

// end drops everything that belongs to the report.
func (r *ReportReader) end(cr *clusterReader) {
	cr.release()
	cr.names, cr.options, cr.buffer, cr.service, cr.refused = nil, nil, nil, "", nil
	r.free.Put(cr)
}

var errReport = rpc.BadMessagef("cluster_stats", "can't be decoded")
