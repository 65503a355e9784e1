package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/isobar-xds/isobar/internal/plan"
)

// live keeps what all readers of changes are sent, made once for all of them and
// only while there are any.
type live struct {
	mu   sync.Mutex
	last *liveSet

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
}

// liveRow is a service in one line.
type liveRow struct {
	name string
	json []byte
	told uint64 // the number at which it became what it is
}

// statusEvery is how often the status is looked at: it asks all clients.
const statusEvery = 5 * time.Second

// now returns the newest state. A state that is younger than a plan or the status
// asks for is made at once, by whoever asks first.
func (l *live) now(ctx context.Context, s *statusAPI) *liveSet {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, at := s.opts.Planner.Current(), time.Now()
	old := l.last
	if old != nil && old.of == p && at.Sub(old.made) < statusEvery {
		return old
	}
	if old == nil {
		old = &liveSet{}
	}
	next := &liveSet{number: old.number + 1, of: p, made: old.made, status: old.status, told: old.told, rows: old.rows, removed: old.removed}
	if p != nil {
		next.version = p.VersionString()
	}
	if old.status == nil || at.Sub(old.made) >= statusEvery {
		// For all readers: whoever asked first may be gone before the answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusEvery)
		next.takeStatus(s.status(ctx, p), at)
		cancel()
	}
	if p != nil && (old.of != p || old.rows == nil) {
		next.takeServices(p, s.opts.Fleet.Subscribers(), old.rows)
	}
	l.last = next
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

func (s *liveSet) takeServices(p *plan.Plan, clients []ServiceClients, old []liveRow) {
	rows := make([]liveRow, 0, len(p.Services))
	k := 0
	for _, svc := range p.Services {
		for k < len(old) && old[k].name < svc.Spec.Name {
			s.removed = s.number
			k++
		}
		line := overviewOf(p, svc, clients)
		line.round()
		row := liveRow{name: svc.Spec.Name, json: encoded(line), told: s.number}
		if k < len(old) && old[k].name == row.name {
			if bytes.Equal(old[k].json, row.json) {
				row = old[k]
			}
			k++
		}
		rows = append(rows, row)
	}
	if k < len(old) {
		s.removed = s.number
	}
	s.rows = rows
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
// where it knows none, 0, else what changed. No reader holds a copy: the encoded
// rows are shared. Errors stay in w.
func (s *liveSet) write(w *bufio.Writer, known uint64) {
	whole := known == 0 || known < s.removed
	_, _ = fmt.Fprintf(w, `{"version":%q,"whole":%t`, s.version, whole)
	if whole || s.told > known {
		_, _ = w.WriteString(`,"status":`)
		_, _ = w.Write(s.status)
	}
	_, _ = w.WriteString(`,"services":[`)
	between := ""
	for i := range s.rows {
		if whole || s.rows[i].told > known {
			_, _ = w.WriteString(between)
			_, _ = w.Write(s.rows[i].json)
			between = ","
		}
	}
	_, _ = w.WriteString("]}\n")
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
