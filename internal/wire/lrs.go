package wire

import (
	"fmt"
	"slices"
	"strings"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"

	"github.com/isobar-xds/isobar/internal/load"
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
	// maxReportRate is beyond what one client can send, requests/s.
	maxReportRate = 1e8
	// maxReportGauge is beyond what one client can have in progress, requests.
	maxReportGauge = 1e9
	// maxMetricMean is beyond what a metric can be, whatever its unit.
	maxMetricMean = 1e15
	// maxUtilization is beyond what a utilization can be: 100 times full.
	maxUtilization = 100.0
)

// RejectCode is why a part of a load report was left out, as a metric label.
type RejectCode string

// The reasons.
const (
	RejectName     RejectCode = "name"     // no or an overlong name
	RejectInterval RejectCode = "interval" // negative or absurd
	RejectCounter  RejectCode = "counter"  // more than a client can count
	RejectMetric   RejectCode = "metric"   // NaN, infinite, negative or absurd
	RejectLocality RejectCode = "locality" // overlong, or an impossible priority
	RejectSize     RejectCode = "size"     // a list beyond its bound
)

// RejectCodes lists all reasons.
func RejectCodes() []RejectCode {
	return []RejectCode{RejectName, RejectInterval, RejectCounter, RejectMetric, RejectLocality, RejectSize}
}

// Rejection tells of a part of a load report that was left out.
type Rejection struct {
	Service string // empty when it has no name
	Code    RejectCode
	Text    string // names the field and the value
}

// LoadReport converts a load report that arrived from a client of a kind. What
// is unbelievable is told to reject and left out: a cluster with its counters,
// or a single metric; the rest stands. Idle clusters without localities are
// kept: they tell that nothing was sent. The error is for messages that are
// too large to look at.
func LoadReport(m *loadstatsv3.LoadStatsRequest, agent load.Agent, arrived time.Time, reject func(Rejection)) (load.Report, error) {
	out := load.Report{Arrived: arrived}
	if n := len(m.GetClusterStats()); n > maxReportClusters {
		return out, badMessage("cluster_stats", "%d clusters, want at most %d", n, maxReportClusters)
	}
	out.Services = make([]load.ServiceReport, 0, len(m.GetClusterStats()))
	for _, cs := range m.GetClusterStats() {
		r := reportReader{service: reportedService(cs), reject: reject}
		if s, ok := r.cluster(cs, agent); ok {
			out.Services = append(out.Services, s)
		}
	}
	// Clients key by cluster and service; here only the service matters. Its
	// entries stay apart, since their clocks may differ, but stand together.
	slices.SortStableFunc(out.Services, func(a, b load.ServiceReport) int { return strings.Compare(a.Service, b.Service) })
	return out, nil
}

// reportedService is what EDS calls the cluster.
func reportedService(cs *endpointv3.ClusterStats) string {
	if n := cs.GetClusterServiceName(); n != "" {
		return n
	}
	return cs.GetClusterName()
}

// reportReader reads one ClusterStats.
type reportReader struct {
	service string
	reject  func(Rejection)
	seconds float64 // what rates are judged by
}

func (r *reportReader) refuse(code RejectCode, format string, args ...any) bool {
	if r.reject != nil {
		r.reject(Rejection{Service: r.service, Code: code, Text: fmt.Sprintf(format, args...)})
	}
	return false
}

func (r *reportReader) cluster(cs *endpointv3.ClusterStats, agent load.Agent) (load.ServiceReport, bool) {
	out := load.ServiceReport{Service: r.service}
	if len(r.service) == 0 || len(r.service) > maxReportName {
		n := len(r.service)
		r.service = ""
		return out, r.refuse(RejectName, "cluster_name: %d bytes long, want 1 to %d", n, maxReportName)
	}
	var ok bool
	if out.Interval, ok = r.interval(cs); !ok {
		return out, false
	}
	if out.Dropped, out.DroppedBy, ok = r.drops(cs, agent); !ok {
		return out, false
	}
	if n := len(cs.GetUpstreamLocalityStats()); n > maxReportLocalities {
		return out, r.refuse(RejectSize, "upstream_locality_stats: %d localities, want at most %d", n, maxReportLocalities)
	}
	for _, ls := range cs.GetUpstreamLocalityStats() {
		l, ok := r.locality(ls)
		if !ok {
			return out, false
		}
		out.Localities = append(out.Localities, l)
	}
	return out, true
}

// interval reads what the client measured; 0 from those that do not tell.
func (r *reportReader) interval(cs *endpointv3.ClusterStats) (time.Duration, bool) {
	r.seconds = 1
	d := cs.GetLoadReportInterval()
	if d == nil {
		return 0, true
	}
	if err := d.CheckValid(); err != nil {
		return 0, r.refuse(RejectInterval, "load_report_interval: %v", err)
	}
	v := d.AsDuration()
	if v < 0 || v > maxReportInterval {
		return 0, r.refuse(RejectInterval, "load_report_interval: %v, want 0 to %v", v, maxReportInterval)
	}
	r.seconds = max(1, v.Seconds())
	return v, true
}

// drops adds up the requests that the client dropped. The total of gRPC
// includes the categories, Envoy's leaves the drops for overload out; of
// unknown clients the larger of both counts: a sum that is too high would
// raise demand, and with it drops.
func (r *reportReader) drops(cs *endpointv3.ClusterStats, agent load.Agent) (uint64, []load.DropCount, bool) {
	total := cs.GetTotalDroppedRequests()
	if n := len(cs.GetDroppedRequests()); n > maxReportDrops {
		return 0, nil, r.refuse(RejectSize, "dropped_requests: %d categories, want at most %d", n, maxReportDrops)
	}
	if !r.counter("total_dropped_requests", total) {
		return 0, nil, false
	}
	var sum uint64
	var by []load.DropCount
	for _, d := range cs.GetDroppedRequests() {
		if !r.counter("dropped_requests.dropped_count", d.GetDroppedCount()) {
			return 0, nil, false
		}
		if len(d.GetCategory()) > maxReportName {
			return 0, nil, r.refuse(RejectName, "dropped_requests.category: %d bytes long, want at most %d", len(d.GetCategory()), maxReportName)
		}
		sum += d.GetDroppedCount() // bounded by 64 times the largest counter
		by = append(by, load.DropCount{Category: d.GetCategory(), Count: d.GetDroppedCount()})
	}
	slices.SortStableFunc(by, func(a, b load.DropCount) int { return strings.Compare(a.Category, b.Category) })
	switch agent {
	case load.AgentGRPC:
		return total, by, true
	case load.AgentEnvoy:
		return total + sum, by, true
	default:
		return max(total, sum), by, true
	}
}

// counter refuses counts that no client can reach, 2^64-1 among them.
func (r *reportReader) counter(field string, n uint64) bool {
	if float64(n) > maxReportRate*r.seconds {
		return r.refuse(RejectCounter, "%s: %d in %v s, want at most %v a second", field, n, r.seconds, maxReportRate)
	}
	return true
}
