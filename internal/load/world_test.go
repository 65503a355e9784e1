package load_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// fate is what becomes of requests that a client sends to a locality.
type fate int

const (
	served fate = iota
	failed
	unconnected // nothing is issued: the client spreads over the others it knows
)

// world is a fleet in virtual time, with a table and an evidence.
type world struct {
	t          *testing.T
	now        time.Time
	tab        *load.Table
	evidence   *load.Adherence
	sources    []*worldSource
	fate       func(from, to isobar.Locality) fate
	edit       func(from, to isobar.Locality, x *load.LocalityReport) // what is reported in place of x; nil = x
	deviations load.Deviations
	lag        time.Duration // how late reports arrive
}

// worldSource is some clients of one locality with what they are assigned.
type worldSource struct {
	at      isobar.Locality
	nodes   int
	rate    float64 // requests/s of each
	shares  map[isobar.Locality]float64
	backup  isobar.Locality // the next tier
	acked   time.Time
	named   bool                                       // its nodes have names of their own
	obey    func(node int) map[isobar.Locality]float64 // nil = all obey
	pending [][]load.StreamWindow
}

func newWorld(t *testing.T, sources ...*worldSource) *world {
	t.Helper()
	w := &world{t: t, now: start, tab: table(), evidence: load.NewAdherence(load.Settings{Interval: interval}), sources: sources}
	for _, s := range sources {
		s.acked = start
	}
	slices.SortFunc(sources, func(a, b *worldSource) int { return a.at.Compare(b.at) })
	return w
}

// assign changes what a source is told, acknowledged at once.
func (w *world) assign(s *worldSource, shares map[isobar.Locality]float64) {
	s.shares, s.acked = shares, w.now
}

// run lets intervals pass.
func (w *world) run(intervals int) load.Deviations {
	for range intervals {
		w.now = w.now.Add(interval)
		var windows []load.StreamWindow
		for i, s := range w.sources {
			windows = append(windows, s.report(w, load.StreamID(1000*(i+1)))...)
		}
		w.tab.Merge(windows)
		if svc := w.tab.Snapshot(w.now).Service("checkout"); svc != nil {
			w.deviations = w.evidence.Observe(w.now, svc, w.planned())
			w.evidence.Name(&w.deviations, w.tab)
		}
	}
	return w.deviations
}

func (w *world) planned() []load.PlannedSource {
	var out []load.PlannedSource
	for _, s := range w.sources {
		p := load.PlannedSource{Source: s.at, Acked: s.acked, Streams: s.nodes}
		for l, share := range s.shares {
			p.Shares = append(p.Shares, load.PlannedShare{Locality: l, Share: share})
		}
		slices.SortFunc(p.Shares, func(a, b load.PlannedShare) int { return a.Locality.Compare(b.Locality) })
		out = append(out, p)
	}
	return out
}

// report makes the windows of all nodes of a source, late by the world's lag.
func (s *worldSource) report(w *world, first load.StreamID) []load.StreamWindow {
	var out []load.StreamWindow
	for n := range s.nodes {
		shares := s.shares
		if s.obey != nil {
			if other := s.obey(n); other != nil {
				shares = other
			}
		}
		c := client{id: first + load.StreamID(n), open: start, node: load.Node{ID: "n", Cluster: "web", Locality: s.at, Agent: load.AgentGRPC}}
		if s.named {
			c.node.ID = fmt.Sprintf("n%d", n)
		}
		out = append(out, c.window(report(w.now, s.landings(w, shares))))
	}
	s.pending = append(s.pending, out)
	late := int(w.lag / interval)
	if len(s.pending) <= late {
		return nil
	}
	due := s.pending[len(s.pending)-1-late]
	for i := range due {
		due[i].Reports[0].Arrived = w.now
	}
	return due
}

func (s *worldSource) landings(w *world, shares map[isobar.Locality]float64) load.ServiceReport {
	r := load.ServiceReport{Service: "checkout", Interval: interval}
	alive := 0.0
	for l, share := range shares {
		if w.fateOf(s.at, l) != unconnected {
			alive += share
		}
	}
	n := s.rate * interval.Seconds()
	add := func(l isobar.Locality, share float64, priority uint16) {
		x := load.LocalityReport{Locality: &l, Priority: priority, Issued: uint64(n*share + 0.5), HasIssued: true}
		if w.fateOf(s.at, l) == failed {
			x.Errors = x.Issued
		}
		x.Succeeded = x.Issued - x.Errors
		if w.edit != nil {
			w.edit(s.at, l, &x)
		}
		r.Localities = append(r.Localities, x)
	}
	for l, share := range shares {
		if w.fateOf(s.at, l) != unconnected && share > 0 {
			add(l, share/alive, 0)
		}
	}
	if alive == 0 && w.fateOf(s.at, s.backup) != unconnected {
		add(s.backup, 1, 1)
	}
	return r
}

func (w *world) fateOf(from, to isobar.Locality) fate {
	if w.fate == nil {
		return served
	}
	return w.fate(from, to)
}

// barred lists what is barred, as "source>locality".
func barred(f load.Deviations) string {
	var out []string
	for _, b := range f.Barred {
		out = append(out, b.Source.String()+">"+b.Locality.String())
	}
	return strings.Join(out, " ")
}

func unreachable(f load.Deviations) string {
	var out []string
	for _, l := range f.Unreachable {
		out = append(out, l.String())
	}
	return strings.Join(out, " ")
}

func dead(l isobar.Locality, how fate) func(from, to isobar.Locality) fate {
	return func(_, to isobar.Locality) fate {
		if to == l {
			return how
		}
		return served
	}
}

type shares = map[isobar.Locality]float64
