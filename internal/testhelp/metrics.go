package testhelp

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Series reads all series of a counter or gauge: their values by those of their
// labels, which are joined by commas in the order of the labels' names. It is
// empty where there is no such metric.
func Series(tb testing.TB, from prometheus.Gatherer, name string) map[string]float64 {
	tb.Helper()
	families, err := from.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := make([]string, len(m.GetLabel()))
			for i, l := range m.GetLabel() {
				labels[i] = l.GetValue()
			}
			out[strings.Join(labels, ",")] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}

// Metric sums the series of a counter or gauge that have all of these values
// among their labels. The test fails where there is no such metric.
func Metric(tb testing.TB, from prometheus.Gatherer, name string, values ...string) float64 {
	tb.Helper()
	series := Series(tb, from, name)
	if len(series) == 0 {
		tb.Fatalf("no metric %s", name)
	}
	sum := 0.0
	for labels, v := range series {
		have := strings.Split(labels, ",")
		if !slices.ContainsFunc(values, func(want string) bool { return !slices.Contains(have, want) }) {
			sum += v
		}
	}
	return sum
}
