package interop

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
)

// table is what the tests of one run have seen.
type table struct {
	mu    sync.Mutex
	cells map[string]map[string]bool // by client and column: whether all tests of it passed
	who   map[string]version
	facts map[string][]string // by client
}

// version says which client it was: its version, as it says itself where it
// does, and the API version and protocol that it used.
type version struct{ version, protocol string }

var seen = table{cells: map[string]map[string]bool{}, who: map[string]version{}, facts: map[string][]string{}}

// ran notes that a test of a client's column ended.
func (t *table) ran(client, column string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cells[client] == nil {
		t.cells[client] = map[string]bool{}
	}
	before, again := t.cells[client][column]
	t.cells[client][column] = ok && (before || !again)
}

func (t *table) is(client, number, protocol string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.who[client] = version{number, protocol}
}

// fact adds something that the client was seen to do.
func (t *table) fact(client, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(t.facts[client], text) {
		t.facts[client] = append(t.facts[client], text)
	}
}

// runs is t.Run; ran is false if -run leaves the test out.
func runs(t *testing.T, name string, f func(t *testing.T)) (ok, ran bool) {
	t.Helper()
	ok = t.Run(name, func(t *testing.T) {
		ran = true
		f(t)
	})
	return ok, ran
}

// checkColumn runs the test of a client's column and notes its result.
func checkColumn(t *testing.T, client, column string, f func(t *testing.T)) {
	t.Helper()
	if ok, ran := runs(t, column, f); ran {
		seen.ran(client, column, ok)
	}
}

// into writes what was seen over what a page says.
func (t *table) into(p *page) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for client, cells := range t.cells {
		for column, ok := range cells {
			p.row(client).cells[column] = pick(ok, yes, failed)
		}
	}
	for client, who := range t.who {
		p.row(client).version = who
	}
	for _, client := range slices.Sorted(maps.Keys(t.facts)) {
		for _, text := range t.facts[client] {
			p.fact(client, text)
		}
	}
}

// noteReports turns what the relay overheard into facts.
func (s *site) noteReports(r *relay) {
	f, _, _ := r.snapshot()
	note := func(text string) { seen.fact(s.kind.name, text) }
	for _, feature := range f.features {
		note("client feature `" + feature + "`")
	}
	note("`total_issued_requests` " + pick(f.issued, "is set", "is missing: Isobar computes it from completed and active requests"))
	note("node in load reports: " + pick(f.nodeLater, "in each message", "in the first message of a stream only"))
	note("node in discovery requests: " + pick(f.nodeLaterADS, "also in later ones", "only in the first one of a stream"))
	switch f.dropped {
	case f.droppedWithCause:
		note("`total_dropped_requests` includes drops by category")
	case 0:
		note("`total_dropped_requests` excludes drops by category")
	default:
		note("`total_dropped_requests` differs from the sum of the categories")
	}
	if f.noInterval {
		note("reports without an interval")
	}
	if f.yearOne {
		note("the first report of a stream has an interval of 292 years: Isobar uses its own clock")
	}
	if f.streams > 1 { // it was told a drop after its first assignment
		note("opens a new load report stream at each assignment")
	}
	if f.noServiceName {
		note("reports without `cluster_service_name`")
	}
}

func pick(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}

// claim is a difference between the page and what the tests have seen.
type claim struct{ client, column, page, seen string }

func (c claim) String() string {
	return fmt.Sprintf("%s, %s: the page says %q, this run %q", c.client, c.column, c.page, c.seen)
}
