package config

import (
	"strings"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

// What the limit of a quantity may be.
var (
	ratioRange  = strict.Range{AboveMin: true, Max: 1, LargeHint: "it is a fraction: write 0.8 for 80%", ZeroHint: noLimitHint}
	metricRange = strict.Range{AboveMin: true, Max: 1e12, ZeroHint: noLimitHint}
)

const noLimitHint = "remove the limit, or set the health of the endpoints to draining to keep traffic away"

func limitsField(into *[]isobar.Limit) strict.Field {
	return strict.Field{Name: "limits", Read: func(v strict.Value) { *into = readLimits(v) }}
}

// readLimits reads dimensions of capacity. Each metric may have one limit that
// acts and one that is tried.
func readLimits(v strict.Value) []isobar.Limit {
	items, ok := v.List()
	if ok && len(items) > isobar.MaxLimits {
		v.Errorf("keep those that can bind", "%d limits are more than %d", len(items), isobar.MaxLimits)
		return nil
	}
	var out []isobar.Limit
	type key struct {
		metric string
		dry    bool
	}
	lines := map[key]int{}
	for _, item := range items {
		l, at := readLimit(item)
		if l.Metric == "" || l.Max == 0 {
			continue // told already
		}
		k := key{l.Metric, l.DryRun}
		if line, twice := lines[k]; twice {
			at.Errorf("keep one, or let one be a dry run", "the limit of %s is given twice, first in line %d", l.Metric, line)
			continue
		}
		lines[k] = at.Pos().Line
		out = append(out, l)
	}
	return out
}

func readLimit(v strict.Value) (isobar.Limit, strict.Value) {
	l, at := isobar.Limit{}, v
	v.Object([]strict.Field{
		{Name: "metric", Required: true, Read: func(v strict.Value) {
			at = v
			s, ok := v.Text()
			if !ok {
				return
			}
			metric, err := isobar.ParseLimitMetric(s)
			if err != nil {
				v.Errorf(metricHint(s), "%q is not a metric that can have a limit", s)
				return
			}
			l.Metric = metric
		}},
		{Name: "max", Required: true, Read: func(v strict.Value) {
			r := metricRange
			if l.Metric != "" && l.Ratio() {
				r = ratioRange
			}
			if x, ok := v.Float(r); ok {
				l.Max = x
			}
		}},
		boolField("dry_run", &l.DryRun),
	})
	return l, at
}

func metricHint(s string) string {
	const hint = "write rate, in_flight, utilization, cpu_utilization, mem_utilization, application_utilization, or named_metrics.NAME"
	if _, err := isobar.ParseLimitMetric(isobar.NamedMetrics + s); err == nil && !strings.HasPrefix(s, isobar.NamedMetrics) {
		return hint + "; if endpoints name it so themselves, " + isobar.NamedMetrics + s
	}
	return hint + ", where NAME has at most 128 printable characters, no blanks and no quotes"
}

// checkLimits warns where limits have no effect.
func checkLimits(at *strict.Value, s *isobar.Service) {
	if at != nil && len(s.Limits) > 0 && s.Policy.IgnoresLoad() {
		at.Warnf("use another policy, or remove them", "limits have no effect in policy %s", s.Policy)
	}
}
