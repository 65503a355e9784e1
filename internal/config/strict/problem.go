package strict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plural"
)

// Position is a place in a file. Both numbers count from 1; columns count
// characters, not bytes.
type Position struct {
	Line, Column int
}

// Problem is one thing that is wrong, or (a warning) doubtful, in a document.
type Problem struct {
	Position

	File    string
	Path    string // for example services[0].localities[1].max_rate; empty for the document itself
	Text    string // what is wrong
	Hint    string // what to write instead; may be empty
	Warning bool   // the document holds, but likely not as it was meant
}

// String returns "file:line:column: path: what is wrong; what to write instead".
func (p Problem) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: ", p.File, p.Line, p.Column)
	if p.Warning {
		b.WriteString("warning: ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Text)
	if p.Hint != "" {
		b.WriteString("; " + p.Hint)
	}
	return b.String()
}

// Place returns "line:column path", which names the place within a document.
func (p Problem) Place() string {
	place := fmt.Sprintf("%d:%d", p.Line, p.Column)
	if p.Path != "" {
		place += " " + p.Path
	}
	return place
}

// Error is every problem of a document that forbids its use, in the order of
// their positions.
type Error struct {
	Problems []Problem
	// Omitted counts the problems beyond the first MaxProblems.
	Omitted int
}

// MaxProblems bounds how many errors, and how many warnings, are reported on one document. A
// document with more has one mistake many times.
const MaxProblems = 100

// Unwrap makes the error an [isobar.ErrInvalid].
func (e *Error) Unwrap() error { return isobar.ErrInvalid }

// Error lists the problems, one a line.
func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	for _, p := range e.Problems {
		lines = append(lines, p.String())
	}
	if e.Omitted > 0 {
		lines = append(lines, "and "+plural.Count(e.Omitted, "more error", "more errors"))
	}
	return strings.Join(lines, "\n")
}

// report collects the problems of one document.
type report struct {
	file             string
	errors, warnings []Problem
	omitted          int
}

// full reports whether further errors are only counted.
func (r *report) full() bool { return len(r.errors) >= MaxProblems }

func (r *report) add(p Problem) {
	p.File = r.file
	p.Text = bounded(p.Text)
	p.Hint = bounded(p.Hint)
	switch {
	case p.Warning && len(r.warnings) == MaxProblems: // more of them help nobody
	case p.Warning:
		r.warnings = append(r.warnings, p)
	case len(r.errors) < MaxProblems:
		r.errors = append(r.errors, p)
	default:
		r.omitted++
	}
}

// bounded keeps what quotes the input from growing with it.
func bounded(s string) string {
	const most = 500
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

func byPosition(a, b Problem) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}

func (r *report) sorted() (warnings []Problem, err error) {
	r.dropConsequences()
	slices.SortStableFunc(r.warnings, byPosition)
	slices.SortStableFunc(r.errors, byPosition)
	if len(r.errors) == 0 {
		return r.warnings, nil
	}
	return r.warnings, &Error{Problems: r.errors, Omitted: r.omitted}
}

// dropConsequences takes back warnings about items and sections that hold errors: what can't
// be read is often what the warning misses.
func (r *report) dropConsequences() {
	wrong := map[string]bool{} // items and sections that hold errors
	for i := range r.errors {
		path := r.errors[i].Path
		wrong[path] = true
		for n, c := range path {
			if c == '.' || c == '[' {
				wrong[path[:n]] = true
			}
		}
	}
	r.warnings = slices.DeleteFunc(r.warnings, func(w Problem) bool { return wrong[part(w.Path)] })
}

// part is the item of a list, or the section, that holds a value: services[0] of
// services[0].mode.
func part(path string) string {
	if i := strings.LastIndexByte(path, ']'); i >= 0 {
		return path[:i+1]
	}
	section, _, _ := strings.Cut(path, ".")
	return section
}

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

// suggest returns the hint for an unknown field: the field that was likely
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

// Misspelled reports whether a name is likely another one with a typing error: case or separators
// differ, or one letter of one word of at least four letters. us-east is not uk-east, and
// eu-west-1 is not eu-west-2.
func Misspelled(name, other string) bool {
	if len(name) > maxSuggested || len(other) > maxSuggested || name == other {
		return false
	}
	a, b := plain(name), plain(other)
	if a == b {
		return true
	}
	digits := func(s string) string {
		return strings.Map(func(r rune) rune {
			if unicode.IsDigit(r) {
				return r
			}
			return -1
		}, s)
	}
	if digits(a) != digits(b) {
		return false
	}
	between := func(r rune) bool { return !unicode.IsLetter(r) }
	words, others := strings.FieldsFunc(strings.ToLower(name), between), strings.FieldsFunc(strings.ToLower(other), between)
	if len(words) != len(others) {
		return false
	}
	wrong := 0
	for i, w := range words {
		switch {
		case w == others[i]:
		case max(len(w), len(others[i])) < leastWord || distance(w, others[i]) > 1:
			return false
		default:
			wrong++
		}
	}
	return wrong == 1
}

// leastWord is the length of a word from which on one letter that differs is an error.
const leastWord = 4

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
