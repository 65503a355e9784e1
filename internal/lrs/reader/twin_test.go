package reader_test

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs/reader"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// Bounds on a load report.
const (
	maxLocalityName     = 253    // bytes of each part of a locality
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

// twinReport converts a decoded load report that arrived from a client of a kind. What
// is unbelievable is told to reject and left out: a cluster with its counters,
// or a single metric, or the number of requests in progress of a client that tells
// what it issued; the rest stands. Idle clusters without localities are kept: they tell that nothing was sent. The error is for messages that are
// too large to look at.
func twinReport(m *loadstatsv3.LoadStatsRequest, agent load.Agent, arrived time.Time, reject func(reader.Rejection)) (load.Report, error) {
	out := load.Report{Arrived: arrived}
	if n := len(m.GetClusterStats()); n > maxReportClusters {
		return out, rpc.BadMessage("cluster_stats", fmt.Sprintf("%d clusters, want at most %d", n, maxReportClusters))
	}
	out.Services = make([]load.ServiceReport, 0, len(m.GetClusterStats()))
	for _, cs := range m.GetClusterStats() {
		r := twinReader{service: reportedService(cs), agent: agent, reject: reject}
		if s, ok := r.cluster(cs); ok {
			out.Services = append(out.Services, s)
		} else if r.service != "" && !slices.Contains(out.Refused, r.service) {
			out.Refused = append(out.Refused, r.service)
		}
	}
	slices.Sort(out.Refused)
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

// twinReader reads one ClusterStats.
type twinReader struct {
	service string
	agent   load.Agent
	reject  func(reader.Rejection)
	seconds float64 // what rates are judged by
}

func (r *twinReader) refuse(code rpc.RejectCode, format string, args ...any) bool {
	if r.reject != nil {
		r.reject(reader.Rejection{Service: r.service, Code: code, Text: fmt.Sprintf(format, args...)})
	}
	return false
}

func (r *twinReader) cluster(cs *endpointv3.ClusterStats) (load.ServiceReport, bool) {
	out := load.ServiceReport{Service: r.service}
	if len(r.service) == 0 || len(r.service) > maxReportName {
		n := len(r.service)
		r.service = ""
		return out, r.refuse(rpc.RejectName, "cluster_name: %d bytes long, want 1 to %d", n, maxReportName)
	}
	var ok bool
	if out.Interval, ok = r.interval(cs); !ok {
		return out, false
	}
	if out.Dropped, out.DroppedBy, ok = r.drops(cs); !ok {
		return out, false
	}
	if n := len(cs.GetUpstreamLocalityStats()); n > maxReportLocalities {
		return out, r.refuse(rpc.RejectSize, "upstream_locality_stats: %d localities, want at most %d", n, maxReportLocalities)
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
func (r *twinReader) interval(cs *endpointv3.ClusterStats) (time.Duration, bool) {
	r.seconds = 1
	d := cs.GetLoadReportInterval()
	if d == nil || d.GetSeconds() == 9223372036 && d.GetNanos() == 854775807 {
		return 0, true
	}
	if err := d.CheckValid(); err != nil {
		return 0, r.refuse(rpc.RejectInterval, "load_report_interval: %d s and %d ns are no duration", d.GetSeconds(), d.GetNanos())
	}
	v := d.AsDuration()
	if v < 0 || v > maxReportInterval {
		return 0, r.refuse(rpc.RejectInterval, "load_report_interval: %v, want 0 to %v", v, maxReportInterval)
	}
	r.seconds = max(1, v.Seconds())
	return v, true
}

// drops counts dropped requests: the total includes the categories.
func (r *twinReader) drops(cs *endpointv3.ClusterStats) (uint64, []load.DropCount, bool) {
	total := cs.GetTotalDroppedRequests()
	if n := len(cs.GetDroppedRequests()); n > maxReportDrops {
		return 0, nil, r.refuse(rpc.RejectSize, "dropped_requests: %d categories, want at most %d", n, maxReportDrops)
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
			return 0, nil, r.refuse(rpc.RejectName, "dropped_requests.category: %d bytes long, want at most %d", len(d.GetCategory()), maxReportName)
		}
		sum += d.GetDroppedCount() // bounded by 64 times the largest counter
		by = append(by, load.DropCount{Category: d.GetCategory(), Count: d.GetDroppedCount()})
	}
	slices.SortStableFunc(by, func(a, b load.DropCount) int { return strings.Compare(a.Category, b.Category) })
	return max(total, sum), by, true
}

// counter refuses counts that no client can reach, 2^64-1 among them.
func (r *twinReader) counter(field string, n uint64) bool {
	if float64(n) > maxReportRate*r.seconds {
		return r.refuse(rpc.RejectCounter, "%s: %d in %v s, want at most %v a second", field, n, r.seconds, maxReportRate)
	}
	return true
}

func (r *twinReader) locality(ls *endpointv3.UpstreamLocalityStats) (load.LocalityReport, bool) {
	l := ls.GetLocality()
	out := load.LocalityReport{
		Priority:   uint16(min(ls.GetPriority(), math.MaxUint16)),
		Issued:     ls.GetTotalIssuedRequests(),
		HasIssued:  ls.GetTotalIssuedRequests() > 0,
		Succeeded:  ls.GetTotalSuccessfulRequests(),
		Errors:     ls.GetTotalErrorRequests(),
		InProgress: uint32(min(ls.GetTotalRequestsInProgress(), math.MaxUint32)),
	}
	if at := (isobar.Locality{Region: l.GetRegion(), Zone: l.GetZone(), SubZone: l.GetSubZone()}); !at.IsZero() {
		out.Locality = &at
	}
	if n := max(len(l.GetRegion()), len(l.GetZone()), len(l.GetSubZone())); n > maxLocalityName {
		return out, r.refuse(rpc.RejectLocality, "locality: a part is %d bytes long, want at most %d", n, maxLocalityName)
	}
	if n := ls.GetPriority(); n > maxReportPriority {
		return out, r.refuse(rpc.RejectLocality, "priority: %d, want at most %d", n, maxReportPriority)
	}
	ok := r.counter("total_issued_requests", out.Issued) &&
		r.counter("total_successful_requests", out.Succeeded) &&
		r.counter("total_error_requests", out.Errors)
	if !ok {
		return out, false
	}
	if !r.gauge("total_requests_in_progress", ls.GetTotalRequestsInProgress()) {
		if !out.HasIssued && r.agent != load.AgentGRPC {
			return out, false
		}
		out.InProgress = 0
	}
	metrics := r.metrics(ls)
	endpoints, ok := r.endpoints(ls)
	if metrics != nil || endpoints != nil {
		out.Details = &load.LocalityDetails{Metrics: metrics, Endpoints: endpoints}
	}
	return out, ok
}

func (r *twinReader) gauge(field string, n uint64) bool {
	if n > maxReportGauge {
		return r.refuse(rpc.RejectCounter, "%s: %d, want at most %v", field, n, maxReportGauge)
	}
	return true
}

// namedMetrics is what clients put before the names of ORCA's named metrics
// once they are told which ones to propagate.
const namedMetrics = "named_metrics."

// metrics reads the ORCA metrics, sorted by name. They come from backends: a
// bad one says nothing about the client's counters and goes alone.
func (r *twinReader) metrics(ls *endpointv3.UpstreamLocalityStats) []load.MetricSum {
	var out []load.MetricSum
	for _, u := range []struct {
		name string
		m    *endpointv3.UnnamedEndpointLoadMetricStats
	}{
		{load.MetricCPU, ls.GetCpuUtilization()},
		{load.MetricMemory, ls.GetMemUtilization()},
		{load.MetricApplication, ls.GetApplicationUtilization()},
	} {
		out = r.metric(out, u.name, u.m.GetNumRequestsFinishedWithMetric(), u.m.GetTotalMetricValue())
	}
	if n := len(ls.GetLoadMetricStats()); n > maxReportMetrics {
		r.refuse(rpc.RejectSize, "load_metric_stats: %d metrics, want at most %d", n, maxReportMetrics)
		return out
	}
	for _, m := range ls.GetLoadMetricStats() {
		out = r.metric(out, strings.TrimPrefix(m.GetMetricName(), namedMetrics), m.GetNumRequestsFinishedWithMetric(), m.GetTotalMetricValue())
	}
	return out
}

func (r *twinReader) metric(to []load.MetricSum, name string, n uint64, total float64) []load.MetricSum {
	switch {
	case n == 0 && total == 0:
		return to
	case name == "" || len(name) > maxReportName:
		r.refuse(rpc.RejectMetric, "load_metric_stats.metric_name: %d bytes long, want 1 to %d", len(name), maxReportName)
		return to
	case n == 0 || math.IsNaN(total) || math.IsInf(total, 0) || math.Abs(total) > maxMetricMean*float64(n):
		r.refuse(rpc.RejectMetric, "%s: a total of %v over %d requests", name, total, n)
		return to
	case float64(n) > maxReportRate*r.seconds:
		r.refuse(rpc.RejectMetric, "%s: %d requests, want at most %v a second", name, n, maxReportRate)
		return to
	case utilizationMetric(name) && (total < 0 || total > maxUtilization*float64(n)):
		r.refuse(rpc.RejectMetric, "%s: a mean of %v, want 0 to %v", name, total/float64(n), maxUtilization)
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

// endpoints reads the statistics by endpoint, which clients send only when
// asked to. Addresses that are no sockets are skipped.
func (r *twinReader) endpoints(ls *endpointv3.UpstreamLocalityStats) ([]load.EndpointReport, bool) {
	stats := ls.GetUpstreamEndpointStats()
	if len(stats) > maxReportEndpoints {
		return nil, r.refuse(rpc.RejectSize, "upstream_endpoint_stats: %d endpoints, want at most %d", len(stats), maxReportEndpoints)
	}
	var out []load.EndpointReport
	for _, es := range stats {
		address := socketAddress(es.GetAddress())
		if address == "" {
			continue
		}
		e := load.EndpointReport{
			Address:    address,
			Issued:     es.GetTotalIssuedRequests(),
			Succeeded:  es.GetTotalSuccessfulRequests(),
			Errors:     es.GetTotalErrorRequests(),
			InProgress: es.GetTotalRequestsInProgress(),
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
	return out, true
}

func socketAddress(a *corev3.Address) string {
	s := a.GetSocketAddress()
	if s == nil || s.GetAddress() == "" || len(s.GetAddress()) > maxLocalityName {
		return ""
	}
	return net.JoinHostPort(s.GetAddress(), strconv.FormatUint(uint64(s.GetPortValue()), 10))
}
