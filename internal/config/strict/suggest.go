package strict

import (
	"cmp"
	"slices"
	"strings"
)

// maxSuggested bounds the lengths of names that are compared: the time grows with
// their product.
const maxSuggested = 256

// Nearest lists what may have been meant by a name that does not exist, the
// nearest first, at most so many. Case and word separators do not count, and a
// third of the characters may differ.
func Nearest(name string, names []string, most int) []string {
	if len(name) > maxSuggested {
		return nil
	}
	type near struct {
		name     string
		distance int
	}
	var found []near
	limit := max(1, len(name)/3)
	for _, n := range names {
		if len(n) > maxSuggested || len(n)-len(name) > 2*limit || len(name)-len(n) > 2*limit {
			continue
		}
		if d := distance(plain(name), plain(n)); d <= limit {
			found = append(found, near{n, d})
		}
	}
	slices.SortFunc(found, func(a, b near) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.name, b.name))
	})
	out := make([]string, 0, min(len(found), most))
	for _, f := range found[:min(len(found), most)] {
		out = append(out, f.name)
	}
	return out
}

// suggest gives the hint for an unknown field: the field that was likely
// meant, which is returned, too, else all that there are.
func suggest(name string, fields []Field) (hint, meant string) {
	const longest = 64 // no field has a longer name
	best, bestDistance := "", 1+max(1, len(name)/3)
	if len(name) <= longest {
		for _, f := range fields {
			if d := distance(plain(name), plain(f.Name)); d < bestDistance {
				best, bestDistance = f.Name, d
			}
		}
	}
	if best != "" {
		return "did you mean " + best + "?", best
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return "the fields here are " + strings.Join(names, ", "), ""
}

var separators = strings.NewReplacer("_", "", "-", "", " ", "")

// plain forgets case and word separators: maxRate is max_rate.
func plain(s string) string { return separators.Replace(strings.ToLower(s)) }

// distance is the number of characters to insert, delete, replace or swap with
// a neighbour to get from a to b (optimal string alignment).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
