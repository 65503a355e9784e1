package measure

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// Result is one measurement: a line of Go's benchmark format.
type Result struct {
	Name   string // without "Benchmark"
	N      int64
	Values []Value
}

// Value is one number of a result.
type Value struct {
	Number float64
	Unit   string
}

// String is the line as benchstat reads it.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Benchmark%s\t%d", r.Name, r.N)
	for _, v := range r.Values {
		fmt.Fprintf(&b, "\t%.6g %s", v.Number, v.Unit)
	}
	return b.String()
}

// Summary gathers results for a table of medians.
type Summary struct {
	numbers map[key][]float64
}

type key struct{ scenario, unit, server string }

// Add takes a result in.
func (s *Summary) Add(r Result) {
	if s.numbers == nil {
		s.numbers = map[key][]float64{}
	}
	scenario, server, _ := strings.Cut(r.Name, "/server=")
	for _, v := range r.Values {
		k := key{scenario, v.Unit, server}
		s.numbers[k] = append(s.numbers[k], v.Number)
	}
}

// Quantile returns the q-quantile of what was measured, by its nearest rank, and
// whether anything was.
func (s *Summary) Quantile(scenario, unit, server string, q float64) (float64, bool) {
	all := slices.Sorted(slices.Values(s.numbers[key{scenario, unit, server}]))
	if len(all) == 0 {
		return 0, false
	}
	if q == 0.5 && len(all)%2 == 0 {
		return (all[len(all)/2-1] + all[len(all)/2]) / 2, true
	}
	return nearest(all, q), true
}

// nearest returns the q-quantile of sorted values by its nearest rank.
func nearest[T any](sorted []T, q float64) T {
	rank := int(math.Ceil(q * float64(len(sorted)) * (1 - 1e-12))) // 0.99 x 300 may round up
	return sorted[max(rank, 1)-1]
}

// Write prints the medians, and what each server is in proportion to Isobar.
func (s *Summary) Write(w io.Writer) error {
	keys := slices.SortedFunc(maps.Keys(s.numbers), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.scenario, b.scenario), cmp.Compare(a.unit, b.unit), cmp.Compare(a.server, b.server))
	})
	for _, k := range keys {
		median, _ := s.Quantile(k.scenario, k.unit, k.server, 0.5)
		high, _ := s.Quantile(k.scenario, k.unit, k.server, 0.99)
		line := fmt.Sprintf("%-46s %-16s %-12s median %10.5g  p99 %10.5g", k.scenario, k.unit, k.server, median, high)
		if own, ok := s.own(k); ok && own > 0 {
			line += fmt.Sprintf("  %6.2f x isobar", median/own)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// own is Isobar's median of the same number.
func (s *Summary) own(k key) (float64, bool) {
	for _, name := range []string{"isobar", "lrs-isobar"} {
		if name == k.server {
			return 0, false
		}
		if v, ok := s.Quantile(k.scenario, k.unit, name, 0.5); ok {
			return v, true
		}
	}
	return 0, false
}
