package strict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
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

// String gives "file:line:column: path: what is wrong; what to write instead".
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

// Place gives "line:column path", which names the place within a document.
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

// MaxProblems bounds how many errors, and how many warnings, are told of one
// document. Whoever has more has one mistake many times.
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
		lines = append(lines, fmt.Sprintf("and %d more errors", e.Omitted))
	}
	return strings.Join(lines, "\n")
}

// report collects the problems of one document.
type report struct {
	file             string
	errors, warnings []Problem
	omitted          int
}

// full tells whether further errors are only counted.
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
	slices.SortStableFunc(r.warnings, byPosition)
	slices.SortStableFunc(r.errors, byPosition)
	if len(r.errors) == 0 {
		return r.warnings, nil
	}
	return r.warnings, &Error{Problems: r.errors, Omitted: r.omitted}
}
