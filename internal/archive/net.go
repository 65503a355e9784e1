package archive

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Bounds of what [Archive.Net] reads, the newest changes of a span first.
const (
	maxNetChanges = 1000
	maxNetBytes   = 4 << 20 // compressed
)

// maxNetReasons bounds the reasons of a service.
const maxNetReasons = 3

// Net is what differs after a span of time from before it.
type Net struct {
	Count    int          // of the changes of the span
	Counted  int          // number of the newest changes, on which the other fields are based
	Since    time.Time    // of the first that is counted; zero: none
	Services []NetService // that changed, sorted
}

// NetService is the net change of one service.
type NetService struct {
	Service    string      `json:"service"`
	Removed    bool        `json:"removed,omitempty"` // it does not exist now
	Changes    int         `json:"changes"`           // that changed it
	DropBefore float64     `json:"drop_before,omitempty"`
	DropAfter  float64     `json:"drop_after,omitempty"`
	Rate       *float64    `json:"rate,omitempty"` // requests/s that go elsewhere after the span, at the present demand
	Reasons    []NetReason `json:"reasons"`        // causes of its largest changes, at most 3
	MoveCount  int         `json:"move_count"`     // shares that changed at all
	Moves      []NetMove   `json:"moves"`          // of those, the largest
}

// NetReason is why a service changed.
type NetReason struct {
	Made    time.Time `json:"made"`
	Trigger string    `json:"trigger"`
	Text    string    `json:"text"`
}

// NetMove is the share that a source sends to a locality.
type NetMove struct {
	Source   isobar.Locality `json:"source"`
	Locality isobar.Locality `json:"locality"`
	Before   *float64        `json:"before,omitempty"` // before the span; missing: the source did not exist
	After    *float64        `json:"after,omitempty"`  // after the span; missing: the source no longer exists
	Low      float64         `json:"low"`              // the least from before the span until after it
	High     float64         `json:"high"`             // the most
	Changes  int             `json:"changes"`          // of this share
	Rate     *float64        `json:"rate,omitempty"`   // requests/s more, or below zero fewer, at the present demand of the source
}

// Net tells what differs after the changes from one moment on and before another one from
// before them, of one service or, for an empty name, of all.
func (a *Archive) Net(service string, from, to time.Time) (Net, error) {
	s := &stored{refs: a.refs(), service: service}
	if service == "" {
		return net(s, from, to)
	}
	if _, err := a.Marks(service); err != nil { // the next line gives what it looked up
		return Net{}, err
	}
	about := a.known(service).marks
	s.about = func(number int) bool {
		_, found := slices.BinarySearchFunc(about, number, func(x numbered, n int) int { return cmp.Compare(x.number, n) })
		return found
	}
	s.refs = slices.DeleteFunc(s.refs, func(r ref) bool { return r.mark.Trigger != plan.TriggerRestart && !s.about(r.number) })
	return net(s, from, to)
}

// NetOf tells the same of changes, oldest first.
func NetOf(changes []plan.Change, from, to time.Time) Net {
	out, _ := net(listed(changes), from, to) // only files fail
	return out
}

// changes are read one by one, oldest first.
type changes interface {
	count() int
	counts(i int) bool // false: it is a restart that concerns the service only by what it took back
	made(i int) time.Time
	version(i int) uint64
	restart(i int) (from uint64, ok bool) // the version from which a restart went on
	size(i int) int                       // of what services reads
	change(i int) (plan.Change, error)
}

type stored struct {
	refs    []ref
	service string
	about   func(number int) bool // whether a change is about the service; nil: all are
}

func (s *stored) counts(i int) bool { return s.about == nil || s.about(s.refs[i].number) }

func (s *stored) count() int           { return len(s.refs) }
func (s *stored) made(i int) time.Time { return s.refs[i].mark.Made }

func (s *stored) version(i int) uint64 { return s.refs[i].mark.Version }

func (s *stored) restart(i int) (from uint64, ok bool) {
	m := &s.refs[i].mark
	return m.Previous, m.Trigger == plan.TriggerRestart
}

func (s *stored) size(i int) int {
	n := 0
	for k := range s.refs[i].blocks {
		if b := &s.refs[i].blocks[k]; s.service == "" || b.mayHold(s.service) {
			n += b.Size
		}
	}
	return n
}

func (s *stored) change(i int) (plan.Change, error) {
	m := &s.refs[i].mark
	services, err := s.refs[i].services(s.service)
	return plan.Change{Version: m.Version, Made: m.Made, Trigger: m.Trigger, Who: m.Who, Reason: m.Reason, Services: services}, err
}

type listed []plan.Change

func (l listed) count() int                        { return len(l) }
func (l listed) counts(int) bool                   { return true }
func (l listed) made(i int) time.Time              { return l[i].Made }
func (l listed) size(int) int                      { return 0 }
func (l listed) change(i int) (plan.Change, error) { return l[i], nil }
func (l listed) version(i int) uint64              { return l[i].Version }

func (l listed) restart(i int) (from uint64, ok bool) {
	return l[i].Previous, l[i].Trigger == plan.TriggerRestart
}

func net(c changes, from, to time.Time) (Net, error) {
	out := Net{Services: []NetService{}}
	read := reach(c, from, to)
	out.Count, out.Counted = read.count, read.counted
	lost := lostIn(c, read.begin, read.end)
	x := &walk{services: map[string]*walked{}}
	for i := read.begin; i < read.end; i++ {
		change, err := c.change(i)
		if err != nil {
			return Net{}, err
		}
		if i == read.first {
			x.start()
		}
		if i >= read.first && out.Since.IsZero() && c.counts(i) {
			out.Since = change.Made
		}
		if _, again := c.restart(i); again {
			x.restart()
		}
		x.take(&change, lost[i-read.begin])
	}
	for _, name := range slices.Sorted(maps.Keys(x.services)) {
		if s := x.services[name]; s.changes > 0 || s.reverted {
			out.Services = append(out.Services, s.net(name))
		}
	}
	return out, nil
}

// extent is the part of the changes that is read.
type extent struct {
	begin, first, end int // from begin until before end, of which the span has those from first on
	count, counted    int // changes of the span, and those of them that are read
}

// reach finds the changes of a span, as far as they are read. Where the span has a restart
// that lost changes from before the span, it took them back within the span: begin is the
// first of those.
func reach(c changes, from, to time.Time) extent {
	in := func(i int) bool { return !c.made(i).Before(from) && c.made(i).Before(to) }
	x, left := extent{}, 0
	for i := range c.count() {
		if in(i) {
			left, x.end = left+1, i+1
			if c.counts(i) {
				x.count++
			}
		}
	}
	x.begin, x.first = x.end, x.end
	bytes, saved := 0, uint64(math.MaxUint64)
	for i := x.end - 1; i >= 0 && (left > 0 || c.version(i) > saved); i-- {
		bytes += c.size(i)
		if i < x.end-1 && (bytes > maxNetBytes || x.end-i > maxNetChanges) {
			break
		}
		x.begin = i
		if left == 0 {
			continue
		}
		x.first = i
		if in(i) {
			left--
			if c.counts(i) {
				x.counted++
			}
		}
		saved = savedAt(c, i, saved)
	}
	return x
}

// savedAt is the lesser of a version and that from which a change, if it is a restart, went
// on.
func savedAt(c changes, i int, saved uint64) uint64 {
	if from, ok := c.restart(i); ok {
		return min(saved, from)
	}
	return saved
}

// lostIn tells which changes a later restart took back: it went on from a version before
// them.
func lostIn(c changes, begin, end int) []bool {
	out := make([]bool, end-begin)
	saved := uint64(math.MaxUint64)
	for i := end - 1; i >= begin; i-- {
		out[i-begin] = c.version(i) > saved
		saved = savedAt(c, i, saved)
	}
	return out
}

// walk follows services through changes.
type walk struct {
	services map[string]*walked
	counts   bool // the span has begun
}

// walked is a service on the way.
type walked struct {
	sites    []isobar.Locality // in the order in which changes name them
	index    map[isobar.Locality]int
	sources  map[isobar.Locality]*sourceShares
	drop     [3]float64 // before the span, now, and what a restart would go on from
	changes  int
	reverted bool
	reasons  []reason
}

func newWalked(drop float64) *walked {
	return &walked{index: map[isobar.Locality]int{}, sources: map[isobar.Locality]*sourceShares{}, drop: [3]float64{drop, drop, drop}}
}

type reason struct {
	NetReason

	moved float64
}

// sourceShares are the shares of a source, in 1/10,000 in the order of the sites; nil where the
// source is not there. A list may be shorter than the sites.
type sourceShares struct {
	before, now, saved []uint16
	low, high          []uint16
	changes            []int
}

// start begins the span.
func (x *walk) start() {
	x.counts = true
	for _, s := range x.services {
		s.drop[0] = s.drop[1]
		for _, r := range s.sources {
			*r = sourceShares{before: r.now, now: r.now, saved: r.saved, low: slices.Clone(r.now), high: slices.Clone(r.now)}
		}
		s.changes, s.reasons = 0, nil
	}
}

// restart goes on from what was saved.
func (x *walk) restart() {
	for _, s := range x.services {
		s.drop[1] = s.drop[2]
		for _, r := range s.sources {
			s.reverted = r.set(r.saved) || s.reverted
		}
	}
}

// take applies a change; one that is lost is not saved.
func (x *walk) take(c *plan.Change, lost bool) {
	for i := range c.Services {
		d := &c.Services[i]
		s := x.services[d.Service]
		if s == nil {
			s = newWalked(d.Before)
			x.services[d.Service] = s
		}
		s.take(d, lost)
		if x.counts {
			s.changes++
			s.because(c, d)
		}
	}
}

func (s *walked) take(d *plan.ServiceChange, lost bool) {
	s.drop[1] = d.After
	if !lost {
		s.drop[2] = d.After
	}
	at := make([]int, len(d.Sites))
	for i, l := range d.Sites {
		k, ok := s.index[l]
		if !ok {
			k = len(s.sites)
			s.index[l], s.sites = k, append(s.sites, l)
		}
		at[i] = k
	}
	for i := range d.Sources {
		c := &d.Sources[i]
		r := s.sources[c.Source]
		if r == nil {
			before := s.spread(c.Before, at)
			r = &sourceShares{before: before, now: before, saved: before, low: slices.Clone(before), high: slices.Clone(before)}
			s.sources[c.Source] = r
		}
		after := s.spread(c.After, at)
		r.set(after)
		if !lost {
			r.saved = after
		}
	}
}

// spread puts units in the order of the sites.
func (s *walked) spread(units []uint16, at []int) []uint16 {
	if len(units) == 0 {
		return nil
	}
	out := make([]uint16, len(s.sites))
	for i, n := range units {
		if i < len(at) {
			out[at[i]] = n
		}
	}
	return out
}

// unit is the share of the site at an index.
func unit(units []uint16, k int) uint16 {
	if k < len(units) {
		return units[k]
	}
	return 0
}

// set replaces the present shares; false where they are the same.
func (r *sourceShares) set(next []uint16) bool {
	changed := (next == nil) != (r.now == nil)
	for k := range max(len(next), len(r.now)) {
		if unit(next, k) == unit(r.now, k) {
			continue
		}
		changed = true
		if len(r.changes) <= k {
			r.changes = append(r.changes, make([]int, k+1-len(r.changes))...)
		}
		r.changes[k]++
	}
	r.now = next
	if next == nil {
		return changed
	}
	seen := r.low != nil
	for k := range max(len(next), len(r.low)) {
		if k >= len(r.low) {
			// A site that no change named before had no share of a source that was there.
			was := uint16(0)
			if !seen {
				was = unit(next, k)
			}
			r.low, r.high = append(r.low, was), append(r.high, was)
		}
		r.low[k], r.high[k] = min(r.low[k], unit(next, k)), max(r.high[k], unit(next, k))
	}
	return changed
}

// because keeps the causes of the largest changes, each text once. How far one decision went says
// nothing of what all of them come to.
func (s *walked) because(c *plan.Change, d *plan.ServiceChange) {
	text := plan.CauseIn(d.Reason)
	if c.Trigger == plan.TriggerOperator {
		text = c.Who + ": " + c.Reason
	}
	if text == "" {
		return
	}
	next := reason{NetReason{c.Made, c.Trigger, text}, d.Moved()}
	if text == plan.NoCause {
		next.moved = -1 // behind all causes that are known
	}
	if i := slices.IndexFunc(s.reasons, func(r reason) bool { return r.Text == text && r.Trigger == c.Trigger }); i >= 0 {
		if s.reasons[i].moved >= next.moved {
			return
		}
		s.reasons = slices.Delete(s.reasons, i, i+1)
	}
	s.reasons = append(s.reasons, next)
	slices.SortStableFunc(s.reasons, func(a, b reason) int {
		return bySize(&Mark{Trigger: a.Trigger, Moved: a.moved}, &Mark{Trigger: b.Trigger, Moved: b.moved})
	})
	s.reasons = s.reasons[:min(len(s.reasons), maxNetReasons)]
}

// net lists what became of a service.
func (s *walked) net(name string) NetService {
	out := NetService{Service: name, Changes: s.changes, DropBefore: s.drop[0], DropAfter: s.drop[1], Reasons: []NetReason{}, Moves: []NetMove{}}
	for i := range s.reasons {
		out.Reasons = append(out.Reasons, s.reasons[i].NetReason)
	}
	share := func(units []uint16, k int) *float64 {
		if units == nil {
			return nil
		}
		x := float64(unit(units, k)) / isobar.WeightScale
		return &x
	}
	for source, r := range s.sources {
		for k := range r.changes {
			if r.changes[k] == 0 {
				continue
			}
			out.Moves = append(out.Moves, NetMove{
				Source: source, Locality: s.sites[k], Before: share(r.before, k), After: share(r.now, k), Changes: r.changes[k],
				Low: float64(unit(r.low, k)) / isobar.WeightScale, High: float64(unit(r.high, k)) / isobar.WeightScale,
			})
		}
	}
	slices.SortFunc(out.Moves, func(a, b NetMove) int { return cmp.Or(a.Source.Compare(b.Source), a.Locality.Compare(b.Locality)) })
	out.MoveCount = len(out.Moves)
	return out
}
