package wire

import (
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

func (r *reportReader) locality(ls *endpointv3.UpstreamLocalityStats) (load.LocalityReport, bool) {
	l := ls.GetLocality()
	out := load.LocalityReport{
		Locality:   isobar.Locality{Region: l.GetRegion(), Zone: l.GetZone(), SubZone: l.GetSubZone()},
		Priority:   ls.GetPriority(),
		Issued:     ls.GetTotalIssuedRequests(),
		HasIssued:  ls.GetTotalIssuedRequests() > 0,
		Succeeded:  ls.GetTotalSuccessfulRequests(),
		Errors:     ls.GetTotalErrorRequests(),
		InProgress: ls.GetTotalRequestsInProgress(),
	}
	if n := max(len(l.GetRegion()), len(l.GetZone()), len(l.GetSubZone())); n > maxLocalityName {
		return out, r.refuse(RejectLocality, "locality: a part is %d bytes long, want at most %d", n, maxLocalityName)
	}
	if out.Priority > maxReportPriority {
		return out, r.refuse(RejectLocality, "priority: %d, want at most %d", out.Priority, maxReportPriority)
	}
	ok := r.counter("total_issued_requests", out.Issued) &&
		r.counter("total_successful_requests", out.Succeeded) &&
		r.counter("total_error_requests", out.Errors) &&
		r.gauge("total_requests_in_progress", out.InProgress)
	if !ok {
		return out, false
	}
	out.Metrics = r.metrics(ls)
	out.Endpoints, ok = r.endpoints(ls)
	return out, ok
}

func (r *reportReader) gauge(field string, n uint64) bool {
	if n > maxReportGauge {
		return r.refuse(RejectCounter, "%s: %d, want at most %v", field, n, maxReportGauge)
	}
	return true
}

// namedMetrics is what clients put before the names of ORCA's named metrics
// once they are told which ones to propagate.
const namedMetrics = "named_metrics."

// metrics reads the ORCA metrics, sorted by name. They come from backends: a
// bad one says nothing about the client's counters and goes alone.
func (r *reportReader) metrics(ls *endpointv3.UpstreamLocalityStats) []load.MetricSum {
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
		r.refuse(RejectSize, "load_metric_stats: %d metrics, want at most %d", n, maxReportMetrics)
		return out
	}
	for _, m := range ls.GetLoadMetricStats() {
		out = r.metric(out, strings.TrimPrefix(m.GetMetricName(), namedMetrics), m.GetNumRequestsFinishedWithMetric(), m.GetTotalMetricValue())
	}
	return out
}

func (r *reportReader) metric(to []load.MetricSum, name string, n uint64, total float64) []load.MetricSum {
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

// endpoints reads the statistics by endpoint, which clients send only when
// asked to. Addresses that are no sockets are skipped.
func (r *reportReader) endpoints(ls *endpointv3.UpstreamLocalityStats) ([]load.EndpointReport, bool) {
	stats := ls.GetUpstreamEndpointStats()
	if len(stats) > maxReportEndpoints {
		return nil, r.refuse(RejectSize, "upstream_endpoint_stats: %d endpoints, want at most %d", len(stats), maxReportEndpoints)
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
