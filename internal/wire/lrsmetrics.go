package wire

import (
	"math"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar/internal/load"
)

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
