package replay

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
)

// words are texts that mean something to Isobar, sorted. Pseudonyms keep the
// order of names among themselves and among these, because lists are sorted.
var words = func() []string {
	out := append(isobar.LimitMetrics(), isobar.DropCategory, isobar.NamedMetrics, HowTick, HowRebase, HowRollback)
	slices.Sort(out)
	return out
}()

// pseudonyms gives a pseudonym to each name. Their order is that of the names,
// and a name that begins another one does so under pseudonyms: clients are
// classed by how their names begin.
func pseudonyms(names map[string]bool) (map[string]string, error) {
	out := make(map[string]string, len(names))
	stems := map[string]bool{}
	for name := range names { // a set becomes another one
		_, stem, _ := stemOf(name)
		if strings.Contains(stem, "*") && !strings.ContainsAny(stem, " {") { // else a text
			return nil, fmt.Errorf("%w: of patterns, only the beginning of a name before a * keeps its meaning, not %q", ErrNames, name)
		}
		stems[stem] = true
	}
	sorted := make([]string, 0, len(stems))
	for stem := range stems { // sorted below
		if stem != "" {
			sorted = append(sorted, stem)
		}
	}
	slices.Sort(sorted)
	given := make(map[string]string, len(sorted))
	for len(sorted) > 0 {
		mark, end := interval(sorted[0])
		n := len(sorted)
		if end != "" {
			n, _ = slices.BinarySearch(sorted, end)
			n = max(1, n) // a stem may be such a word
		}
		label(sorted[:n], 0, mark, given)
		sorted = sorted[n:]
	}
	for name := range names { // each has its own place
		before, stem, after := stemOf(name)
		out[name] = before + given[stem] + after
	}
	return out, nil
}

// stemOf takes off what keeps its meaning: the beginning of the name of a
// metric, and the end of a pattern.
func stemOf(name string) (before, stem, after string) {
	if rest, ok := strings.CutPrefix(name, isobar.NamedMetrics); ok {
		before, name = isobar.NamedMetrics, rest
	}
	if rest, ok := strings.CutSuffix(name, "*"); ok {
		name, after = rest, "*"
	}
	return before, name, after
}

// interval gives what pseudonyms of names like this one begin with so that they
// are above the word below it and below the word above it, which it gives as
// well; empty where there is none.
func interval(name string) (mark, above string) {
	i, _ := slices.BinarySearch(words, name)
	if i < len(words) {
		above = words[i]
	}
	if i == 0 {
		return "0~", above
	}
	below, same := words[i-1], 0
	for same < len(below)-1 && same < len(above) && below[same] == above[same] {
		same++
	}
	return below[:same+1] + "~", above
}

// label gives pseudonyms to sorted names that are the same up to some byte: one
// number for each way in which they go on, of the same width.
func label(names []string, from int, mark string, given map[string]string) {
	if len(names) > 0 && len(names[0]) == from { // it begins all others
		given[names[0]], names = mark, names[1:]
	}
	var ends []int // of the names that go on with the same byte
	for i := range names {
		if i+1 == len(names) || names[i+1][from] != names[i][from] {
			ends = append(ends, i+1)
		}
	}
	width := len(fmt.Sprint(len(ends) - 1))
	first := 0
	for k, end := range ends {
		part, next := names[first:end], from+1
		for low, high := part[0], part[len(part)-1]; next < len(low) && next < len(high) && low[next] == high[next]; {
			next++
		}
		label(part, next, fmt.Sprintf("%s%0*d", mark, width, k), given)
		first = end
	}
}
