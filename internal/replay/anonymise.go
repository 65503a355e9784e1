package replay

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// ErrNames says that a trace can't be decided the same under other names.
var ErrNames = errors.New("the trace can't be anonymised")

// Anonymise copies a trace with pseudonyms instead of all names and
// addresses, and zeros in that of payloads. Both are played side by side: it
// fails where anything is decided differently but for the names. Numbers and
// times stay. The input is read twice.
func Anonymise(to io.Writer, from io.ReadSeeker) error {
	names := map[string]bool{}
	in, err := NewReader(from, ReaderOptions{rename: func(t reflect.Type, text string) string {
		if isName(t, text) {
			names[text] = true
		}
		return text
	}})
	if err != nil {
		return err
	}
	for err == nil {
		_, err = in.next()
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, ErrCut) {
		return err
	}
	given, err := pseudonyms(names)
	if err != nil {
		return err
	}
	return rename(to, from, given)
}

// rename plays a trace under its own names and under others, and writes the
// second.
func rename(to io.Writer, from io.ReadSeeker, names map[string]string) error {
	size, err := from.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	at, ok := from.(io.ReaderAt)
	if !ok {
		return fmt.Errorf("%w: not a regular file", ErrNames)
	}
	own, err := NewReader(io.NewSectionReader(at, 0, size), ReaderOptions{})
	if err != nil {
		return err
	}
	others, err := NewReader(io.NewSectionReader(at, 0, size), ReaderOptions{rename: func(t reflect.Type, text string) string {
		if isName(t, text) {
			return names[text]
		}
		return text
	}})
	if err != nil {
		return err
	}
	a, b := NewPlayer(own), NewPlayer(others)
	b.copy = &copying{to: to}
	for {
		x, err := a.Next()
		y, other := b.Next()
		switch {
		case err == nil && other == nil:
			if x.Difference != "" {
				return fmt.Errorf("%w: its replay differs from the recording: %s", ErrNames, x.Difference)
			}
			if !sameDecision(x.Plan, y.Plan) {
				return fmt.Errorf("%w: with pseudonyms, the replay decides %s at %s differently", ErrNames, x.How, x.Now.UTC())
			}
		case (errors.Is(err, io.EOF) || errors.Is(err, ErrCut)) && other != nil:
			return b.copy.end()
		case err != nil:
			return err
		default:
			return other
		}
	}
}

// sameDecision reports whether two plans say the same but for names.
func sameDecision(a, b *plan.Plan) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Version == b.Version && slices.EqualFunc(a.Services, b.Services, func(x, y *plan.Service) bool {
		if x.Result == nil || y.Result == nil {
			return x.Result == y.Result
		}
		if x.Result.Drop != y.Result.Drop || len(x.Result.Sources) != len(y.Result.Sources) || (x.Hold == "") != (y.Hold == "") {
			return false
		}
		for i := range x.Result.Sources {
			if !slices.Equal(x.Result.Sources[i].Shares, y.Result.Sources[i].Shares) {
				return false
			}
		}
		return true
	})
}

// copying writes what a player plays as a trace of its own; nil writes nothing.
type copying struct {
	to io.Writer
	r  *Recorder
}

// take writes what happened between decisions.
func (c *copying) take(p *Player, e entry) error {
	if c == nil {
		return nil
	}
	switch e := e.(type) {
	case *Start:
		return c.begin(p.About().Isobar, e)
	case *observed:
		event := e.Event
		event.Topology, event.Operators = p.topology, p.operators
		c.r.Observe(&event, e.Report, e.Tick)
	case *released:
		c.r.Release(e.Service, e.Localities)
	case *End:
		c.r.End(e.Reason)
	}
	return c.r.WriteNow(c.to)
}

func (c *copying) begin(version string, s *Start) error {
	if err := c.end(); err != nil {
		return err
	}
	c.r = NewRecorder(version, 0)
	if err := c.r.Begin(s); err != nil {
		return err
	}
	return c.r.WriteNow(c.to)
}

// turn writes what is to be decided.
func (c *copying) turn(p *Player, t *turned) error {
	if c == nil {
		return nil
	}
	again := *t
	c.r.turned(&t.Turn, p.operators, &again)
	return c.r.WriteNow(c.to)
}

// decided writes what was.
func (c *copying) decided(s *Step, failed error) error {
	if c == nil {
		return nil
	}
	c.r.Decided(s.Before, s.Plan, failed)
	return c.r.WriteNow(c.to)
}

// end ends a recording that did not end by itself.
func (c *copying) end() error {
	if c.r == nil {
		return nil
	}
	c.r.End(EndFinished)
	return c.r.WriteNow(c.to)
}

// isName reports whether a text is a name, or a text of names: all but words of
// Isobar's own.
func isName(t reflect.Type, text string) bool {
	if t != reflect.TypeFor[string]() && t != reflect.TypeFor[isobar.Metadata]() {
		return false // a type of words
	}
	return !slices.Contains(words, text)
}

// words are texts that mean something to Isobar, sorted. Pseudonyms keep the
// order of names among themselves and among these, because lists are sorted.
var words = func() []string {
	out := append(isobar.LimitMetrics(), isobar.DropCategory, isobar.NamedMetrics, HowTick, HowReapply, HowRollback)
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

// interval returns what pseudonyms of names like this one begin with so that they
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
