package reader

import (
	"math"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// readMetric reads a sum of a metric, named or not; the count stands in field
// first, and the total behind it.
func readMetric(encoded []byte, first uint64, name *[]byte, n *uint64, total *float64) bool {
	c := rpc.Cursor{Rest: encoded}
	for c.Next() {
		switch {
		case c.Key == first<<rpc.KeyShift|varintKind:
			*n = c.Varint()
		case c.Key == (first+1)<<rpc.KeyShift|doubleKind:
			*total = c.Double()
		case name != nil && c.Key == metricName<<rpc.KeyShift|bytesKind:
			*name = c.Bytes()
		default:
			c.Skip()
		}
	}
	return !c.Bad
}

// namedMetrics is the prefix that clients put before the names of ORCA's named metrics once the
// server tells them which ones to propagate.
const namedMetrics = "named_metrics."

// metrics reads the ORCA metrics, sorted by name. They come from backends: a
// bad one says nothing about the client's counters and goes alone.
func (r *clusterReader) metrics(encoded []byte, h *localityHead) []load.MetricSum {
	var out []load.MetricSum
	defer func() { r.buffer.beside += cap(out) * metricBytes }()
	for i, name := range [...]string{load.MetricCPU, load.MetricMemory, load.MetricApplication} {
		out = r.metric(out, name, h.unnamed[i].n, h.unnamed[i].total)
	}
	if h.metrics == 0 {
		return out
	}
	if h.metrics > maxReportMetrics {
		r.refuse(rpc.RejectSize, "load_metric_stats: %d metrics, want at most %d", h.metrics, maxReportMetrics)
		return out
	}
	for c := (rpc.Cursor{Rest: encoded}); c.Next(); {
		if c.Key != statsMetrics<<rpc.KeyShift|bytesKind {
			c.Skip()
			continue
		}
		var (
			name  []byte
			n     uint64
			total float64
		)
		if !readMetric(c.Bytes(), metricRequests, &name, &n, &total) {
			r.malformed()
			return nil
		}
		text, ok := r.name(name)
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
