package archive

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// maxSelected bounds the services whose marks are kept ready.
const maxSelected = 32

// selected are the marks of a service, oldest first.
type selected struct {
	next  int // number of the first change that was not looked at
	marks []numbered
	used  time.Time
}

type numbered struct {
	number int
	mark   Mark
}

// refs lists all changes, oldest first.
func (a *Archive) refs() []ref {
	a.mu.RLock()
	defer a.mu.RUnlock()
	n := a.removed
	var out []ref
	for _, s := range a.segments {
		for i := range s.entries {
			out = append(out, ref{entry: &s.entries[i], number: n, file: s.file, data: s.data})
			n++
		}
	}
	return out
}

// Marks lists the changes of a service, or all for an empty name, oldest first.
func (a *Archive) Marks(service string) ([]Mark, error) {
	all := a.refs()
	if service == "" {
		out := make([]Mark, len(all))
		for i := range all {
			out[i] = all[i].mark
		}
		return out, nil
	}
	known := a.known(service)
	if len(all) > 0 {
		first := all[0].number
		known.marks = slices.DeleteFunc(known.marks, func(x numbered) bool { return x.number < first })
		all = all[min(max(0, known.next-first), len(all)):]
	}
	for i := range all {
		m, ok, err := markOf(&all[i], service)
		if err != nil {
			return nil, err
		}
		known.next = all[i].number + 1
		if ok {
			known.marks = append(known.marks, numbered{all[i].number, m})
		}
	}
	a.remember(service, known)
	out := make([]Mark, len(known.marks))
	for i := range known.marks {
		out[i] = known.marks[i].mark
	}
	return out, nil
}

// known returns a copy of what was selected of a service.
func (a *Archive) known(service string) *selected {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if x := a.cache[service]; x != nil {
		return &selected{next: x.next, marks: slices.Clone(x.marks)}
	}
	return &selected{}
}

func (a *Archive) remember(service string, x *selected) {
	x.used = time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.cache) >= maxSelected && a.cache[service] == nil {
		oldest := ""
		for name, other := range a.cache {
			if oldest == "" || other.used.Before(a.cache[oldest].used) {
				oldest = name
			}
		}
		delete(a.cache, oldest)
	}
	a.cache[service] = x
}

// markOf returns the mark of a change as far as it is about one service; false where it is
// not.
func markOf(r *ref, service string) (Mark, bool, error) {
	found, err := r.services(service)
	if err != nil {
		return Mark{}, false, err
	}
	m := r.mark
	if len(found) == 0 {
		m.Services, m.Moved, m.Most, m.Why = 0, 0, "", ""
		return m, m.Trigger == plan.TriggerOperator && (m.About == "" || m.About == service), nil
	}
	m.Services, m.Moved, m.Most, m.Why = 1, found[0].Moved(), service, found[0].Reason
	return m, true, nil
}

// Change returns the change of a version, all of it or its part about one service. The
// error wraps isobar.ErrNotFound where it is not kept.
func (a *Archive) Change(version uint64, service string) (plan.Change, error) {
	all := a.refs()
	i, ok := slices.BinarySearchFunc(all, version, func(r ref, v uint64) int {
		switch {
		case r.mark.Version < v:
			return -1
		case r.mark.Version > v:
			return 1
		}
		return 0
	})
	if !ok {
		return plan.Change{}, fmt.Errorf("version %d: %w: no change of that version is kept", version, isobar.ErrNotFound)
	}
	r := &all[i]
	services, err := r.services(service)
	if err != nil {
		return plan.Change{}, err
	}
	return plan.Change{
		Version: r.mark.Version, Previous: r.mark.Previous, Made: r.mark.Made, Trigger: r.mark.Trigger, Who: r.mark.Who, Reason: r.mark.Reason,
		About: r.mark.About, Services: services,
	}, nil
}

// Shares are the shares of all sources of a service at a moment.
type Shares struct {
	Drop       float64           `json:"drop"`       // fraction that the assignment makes clients drop
	Localities []isobar.Locality `json:"localities"` // of the shares, sorted
	Sources    []SourceShares    `json:"sources"`    // sorted
}

// SourceShares are the shares of one source.
type SourceShares struct {
	Source isobar.Locality `json:"source"`
	Shares []float64       `json:"shares"` // in the order of the localities
}

// shares is Shares while it is rebuilt, from the newest change to the oldest.
type shares struct {
	drop    float64
	sources map[isobar.Locality]map[isobar.Locality]float64
	sites   []isobar.Locality

	lostAbove uint64                   // changes above this version were lost by a restart
	fixed     map[isobar.Locality]bool // sources that lost changes concern
	dropFixed bool
}

// sharesOf begins with what stands now.
func sharesOf(now *plan.SavedService) *shares {
	x := &shares{sources: map[isobar.Locality]map[isobar.Locality]float64{}, lostAbove: math.MaxUint64, fixed: map[isobar.Locality]bool{}}
	if now == nil {
		return x
	}
	x.drop, x.sites = now.Drop, slices.Clone(now.Sites)
	for i := range now.Sources {
		s := &now.Sources[i]
		byLocality := map[isobar.Locality]float64{}
		for k, share := range s.Shares {
			if k < len(now.Sites) && share > 0 {
				byLocality[now.Sites[k]] = share
			}
		}
		x.sources[s.Source] = byLocality
	}
	return x
}

// take takes a later change of the service back; one that is not later and was lost is
// applied.
func (x *shares) take(s *plan.ServiceChange, later, lost bool) {
	x.sites = append(x.sites, s.Sites...)
	for i := range s.Sources {
		c := &s.Sources[i]
		switch {
		case later:
			x.put(c.Source, s.Sites, c.Before)
		case !x.fixed[c.Source]:
			x.put(c.Source, s.Sites, c.After)
		}
		x.fixed[c.Source] = x.fixed[c.Source] || lost
	}
	switch {
	case later:
		x.drop = s.Before
	case !x.dropFixed:
		x.drop = s.After
	}
	x.dropFixed = x.dropFixed || lost
}

func (x *shares) put(source isobar.Locality, sites []isobar.Locality, units []uint16) {
	if len(units) == 0 {
		delete(x.sources, source)
		return
	}
	byLocality := map[isobar.Locality]float64{}
	for i, n := range units {
		if n > 0 && i < len(sites) {
			byLocality[sites[i]] = float64(n) / isobar.WeightScale
		}
	}
	x.sources[source] = byLocality
}

// Moment rebuilds the shares of a service after the change of a version, from those of
// now (nil: the service does not exist now): later changes are taken back, newest first.
// What a process published after it last saved is not part of what the next one went on
// from: such changes are applied instead.
func (a *Archive) Moment(service string, version uint64, now *plan.SavedService) (Shares, error) {
	x := sharesOf(now)
	all := a.refs()
	for i := range slices.Backward(all) {
		r := &all[i]
		later, lost := r.mark.Version > version, r.mark.Version > x.lostAbove
		if !later && !lost {
			break
		}
		found, err := r.services(service)
		if err != nil {
			return Shares{}, err
		}
		for k := range found {
			x.take(&found[k], later, lost)
		}
		if r.mark.Trigger != plan.TriggerRestart {
			continue
		}
		if !later {
			break // what was lost before it is no part of what it went on from
		}
		x.lostAbove, x.dropFixed = r.mark.Previous, false
		clear(x.fixed)
	}
	return x.list(), nil
}

// list sorts the shares.
func (x *shares) list() Shares {
	slices.SortFunc(x.sites, isobar.Locality.Compare)
	out := Shares{Drop: x.drop, Localities: slices.Compact(x.sites), Sources: []SourceShares{}}
	if out.Localities == nil {
		out.Localities = []isobar.Locality{}
	}
	for source, byLocality := range x.sources {
		s := SourceShares{Source: source, Shares: make([]float64, len(out.Localities))}
		for i, l := range out.Localities {
			s.Shares[i] = byLocality[l]
		}
		out.Sources = append(out.Sources, s)
	}
	slices.SortFunc(out.Sources, func(a, b SourceShares) int { return a.Source.Compare(b.Source) })
	return out
}
