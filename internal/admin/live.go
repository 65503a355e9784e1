package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// live keeps what all readers of changes are sent, made once for all of them and
// only while there are any.
type live struct {
	mu      sync.Mutex
	readers int
	left    time.Time // when the last reader left
	number  uint64    // of the last state
	last    *liveSet
	again   time.Time // when the next look may begin

	detailsOf *plan.Plan
	details   map[string][]byte // services of detailsOf that readers asked for
}

// liveSet is one state of the fleet, encoded. Immutable.
type liveSet struct {
	number  uint64 // counts up with each state
	of      *plan.Plan
	made    time.Time // of the status
	version string
	status  []byte
	told    uint64    // the number at which the status became what it is
	rows    []liveRow // sorted by name
	removed uint64    // the number at which a service was last removed
	before  uint64    // the number of the state before; 0 = there is none
	changes []byte    // the line for readers that know the state before; nil = they need the whole
}

// liveRow is a service in one line.
type liveRow struct {
	name string
	json []byte
	told uint64 // the number at which it became what it is

	// What it was made of: where this stays, so does the row.
	of     *plan.Service
	silent []plan.SilentClients
	line   ServiceOverview
}

const (
	// statusEvery is how often the status is looked at: it asks all clients.
	statusEvery = 5 * time.Second
	// lookRest bounds what looks cost: after each there is a pause of so many times what
	// it took, at most restPerService for each service and maxRest. On a busy machine a look
	// takes longer than its work, and a small fleet need not wait for that.
	lookRest       = 125
	restPerService = 30 * time.Millisecond
	maxRest        = 30 * time.Second
	// keepFor is for how long a state is kept that has no readers: until a reader that
	// lost its connection is back.
	keepFor = time.Minute
)

// join counts a reader.
func (l *live) join() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers++
}

// leave forgets a reader, and some time after the last one everything.
func (l *live) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readers--; l.readers == 0 {
		l.left = time.Now()
		time.AfterFunc(keepFor, l.forget)
	}
}

// forget lets go of the state, and with it of a plan, that nobody has read recently.
func (l *live) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readers == 0 && time.Since(l.left) >= keepFor {
		l.last, l.detailsOf, l.details = nil, nil, nil
	}
}

// now returns the newest state. A state that is younger than a plan or the status
// asks for is made at once, by the first reader that asks, unless looks would cost too much.
func (l *live) now(ctx context.Context, s *statusAPI) *liveSet {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, at := s.opts.Planner.Current(), time.Now()
	old := l.last
	if old != nil && (at.Before(l.again) || old.of == p && at.Sub(old.made) < statusEvery) {
		return old
	}
	if old == nil {
		old = &liveSet{}
	}
	next := l.look(ctx, s, old, p, at)
	l.last = next
	end := time.Now()
	l.again = end.Add(min(lookRest*end.Sub(at), time.Duration(len(next.rows))*restPerService, maxRest))
	return next
}

// look makes the state after another one. Where both are the same to readers, it keeps
// the number.
func (l *live) look(ctx context.Context, s *statusAPI, old *liveSet, p *plan.Plan, at time.Time) *liveSet {
	next := &liveSet{
		number: l.number + 1, before: old.number, of: p, made: old.made, status: old.status, told: old.told, rows: old.rows, removed: old.removed,
	}
	if p != nil {
		next.version = p.VersionString()
	}
	if old.status == nil || at.Sub(old.made) >= statusEvery {
		// For all readers: the one that asked first may be gone before the answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusEvery)
		next.takeStatus(s.status(ctx, p), at)
		cancel()
	}
	if p != nil && (old.of != p || old.rows == nil) {
		next.takeServices(p, s.opts.Fleet.Subscribers(), old)
	}
	if old.number > 0 && old.of == p && next.told <= old.number {
		next.number, next.before, next.changes = old.number, old.before, old.changes
		return next
	}
	if !next.needsWhole(old.number) {
		var line bytes.Buffer
		next.compose(&line, old.number)
		next.changes = line.Bytes()
	}
	l.number = next.number
	return next
}

// takeStatus notes a status. What changes in it with every look, the ages, alone
// is nothing new.
func (s *liveSet) takeStatus(status Status, at time.Time) {
	s.made = at
	status.AgeSeconds, status.TickSeconds, status.Ticks, status.Version, status.Made = 0, 0, 0, "", time.Time{}
	status.Clients.OldestAckSeconds = math.Trunc(status.Clients.OldestAckSeconds)
	status.Demand, status.Coverage = rounded(status.Demand), rounded(status.Coverage)
	if status.N1 != nil {
		n1 := *status.N1
		n1.AgeSeconds = 0
		status.N1 = &n1
	}
	if data := encoded(status); !bytes.Equal(data, s.status) {
		s.status, s.told = data, s.number
	}
}

// takeServices makes the rows of a plan. A row whose service no decision touched is taken
// over from the state before, and one that looks the same keeps its text.
func (s *liveSet) takeServices(p *plan.Plan, clients []ServiceClients, before *liveSet) {
	rows := make([]liveRow, 0, len(p.Services))
	lines := newOverviews(p, clients)
	old, sameNetwork := before.rows, networkOf(before.of) == networkOf(p)
	for _, svc := range p.Services {
		for len(old) > 0 && old[0].name < svc.Spec.Name {
			s.removed, old = s.number, old[1:]
		}
		row := liveRow{name: svc.Spec.Name, of: svc, silent: lines.silentOf(svc)}
		var was *liveRow
		if len(old) > 0 && old[0].name == row.name {
			was, old = &old[0], old[1:]
		}
		switch {
		case was != nil && sameNetwork && was.of == svc && slices.Equal(was.silent, row.silent):
			row = *was
		default:
			row.line = lines.line(svc, row.silent)
			row.line.round()
			row.tell(was, s.number)
		}
		rows = append(rows, row)
	}
	if len(old) > 0 {
		s.removed = s.number
	}
	s.rows = rows
}

// tell encodes a row, unless it says what the row before said.
func (r *liveRow) tell(was *liveRow, number uint64) {
	if was != nil && was.line.equal(&r.line) {
		r.json, r.told = was.json, was.told
		return
	}
	r.json, r.told = encoded(&r.line), number
}

func networkOf(p *plan.Plan) *isobar.Network {
	if p == nil || p.Topology == nil {
		return nil
	}
	return p.Topology.Network
}

// equal reports whether two lines say the same.
func (o *ServiceOverview) equal(other *ServiceOverview) bool {
	a, b := *o, *other
	a.Fullest, a.Paused, a.Score, b.Fullest, b.Paused, b.Score = nil, nil, nil, nil, nil, nil
	return a == b && samePointee(o.Fullest, other.Fullest) && samePointee(o.Paused, other.Paused) && samePointee(o.Score, other.Score)
}

func samePointee[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// round keeps what can be seen, so that a row that looks the same is the same.
func (o *ServiceOverview) round() {
	for _, x := range []*float64{
		&o.Demand, &o.Shift, &o.Moving, &o.Drop, &o.Gap, &o.CeilingScale, &o.Coverage, &o.CrossZone, &o.CrossRegion, &o.EgressMS, &o.P99MS,
	} {
		*x = rounded(*x)
	}
	if o.Fullest != nil {
		o.Fullest.Utilization = rounded(o.Fullest.Utilization)
	}
	if o.Score != nil {
		score := rounded(*o.Score)
		o.Score = &score
	}
}

// rounded keeps three digits, and of fractions those that show in 0.1%.
func rounded(x float64) float64 {
	if math.Abs(x) < 1 {
		return math.Round(x*1000) / 1000
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(math.Abs(x))))
	if math.IsInf(scale, 0) || math.IsNaN(scale) || scale == 0 {
		return x
	}
	return math.Round(x*scale) / scale
}

func encoded(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil { // as of a number that JSON does not have
		data, _ = json.Marshal(Problem{Error: err.Error()}) //nolint:errchkjson // strings only
	}
	return data
}

// write sends a reader that knows the state of another number what it needs: all
// where it knows none, 0, else what changed. No reader holds a copy: the line for those
// that know the state before and the encoded rows are shared. Errors stay in w.
func (s *liveSet) write(w *bufio.Writer, known uint64) {
	if s.changes != nil && known == s.before {
		_, _ = w.Write(s.changes)
		return
	}
	s.compose(w, known)
}

func (s *liveSet) needsWhole(known uint64) bool { return known == 0 || known < s.removed }

func (s *liveSet) compose(w io.Writer, known uint64) {
	whole := s.needsWhole(known)
	_, _ = fmt.Fprintf(w, `{"version":%q,"whole":%t`, s.version, whole)
	if whole || s.told > known {
		_, _ = io.WriteString(w, `,"status":`)
		_, _ = w.Write(s.status)
	}
	_, _ = io.WriteString(w, `,"services":[`)
	between := ""
	for i := range s.rows {
		if whole || s.rows[i].told > known {
			_, _ = io.WriteString(w, between)
			_, _ = w.Write(s.rows[i].json)
			between = ","
		}
	}
	_, _ = io.WriteString(w, "]}\n")
}

// detail returns one service of the current plan as a line, made once for all readers
// that ask for it, and the version; nil before the first plan.
func (l *live) detail(s *statusAPI, name string) (line []byte, version string) {
	p := s.opts.Planner.Current()
	if p == nil {
		return nil, ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.detailsOf != p {
		l.detailsOf, l.details = p, map[string][]byte{}
	}
	line, made := l.details[name]
	if !made {
		line = append(s.detail(p, name), '\n')
		if len(l.details) < maxStreams {
			l.details[name] = line
		}
	}
	return line, p.VersionString()
}
