// Package testhelp holds what tests of several packages need. Only tests import
// it.
package testhelp

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/isobar-xds/isobar"
)

// patience is far more than anything waited for takes: a busy machine is slow.
const patience = 30 * time.Second

// Eventually waits until something that happens outside a bubble of virtual time
// holds. The test fails when it does not within 30 s.
func Eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			tb.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// Log is a log that a test reads while others write. The zero value is ready.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write takes what is logged.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all that was logged.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// ClearField clears the n-th populated field of m, depth first, and returns its name.
func ClearField(m protoreflect.Message, n *int) (protoreflect.FullName, bool) {
	var fields []protoreflect.FieldDescriptor
	m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		fields = append(fields, f)
		return true
	})
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int { return int(a.Number() - b.Number()) })
	for _, f := range fields {
		if *n == 0 {
			m.Clear(f)
			return f.FullName(), true
		}
		*n--
		switch {
		case f.IsMap(), f.Kind() != protoreflect.MessageKind:
		case f.IsList():
			list := m.Get(f).List()
			for i := range list.Len() {
				if name, ok := ClearField(list.Get(i).Message(), n); ok {
					return name, true
				}
			}
		default:
			if name, ok := ClearField(m.Get(f).Message(), n); ok {
				return name, true
			}
		}
	}
	return "", false
}

// FourZones is service "checkout" in two zones of each of two regions, with four
// endpoints each that carry 1000 requests/s together, which is 800 beneath the
// default ceiling. The regions are 80 ms apart; clients in us/c, where nothing is
// served, are 1 ms from us/a and 1.9 ms from us/b.
func FourZones(tb testing.TB) *isobar.Topology {
	tb.Helper()
	network, err := isobar.NewNetwork([]isobar.LatencyRule{
		{From: isobar.MustLocality("us"), To: isobar.MustLocality("eu"), MS: 80},
		{From: isobar.MustLocality("us/c"), To: isobar.MustLocality("us/a"), MS: 1},
		{From: isobar.MustLocality("us/c"), To: isobar.MustLocality("us/b"), MS: 1.9},
	})
	if err != nil {
		tb.Fatal(err)
	}
	s := isobar.Service{Name: "checkout"}
	for i, zone := range []string{"eu/a", "eu/b", "us/a", "us/b"} {
		sl := isobar.ServiceLocality{Locality: isobar.MustLocality(zone), MaxRate: 1000, Concurrency: 40}
		for e := range 4 {
			sl.Endpoints = append(sl.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.%d.0.%d:80", i, e+1)})
		}
		s.Localities = append(s.Localities, sl)
	}
	return &isobar.Topology{Revision: 1, Network: network, Services: []isobar.Service{s}}
}

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
// among their labels: values alone, such as "excess", without the names of the labels. The test
// fails where there is no such metric; without such a series the sum is 0.
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
