// Package samples keeps what the plans of the last day say of each service: demand,
// drops, gap, shares that cross zones and regions, and the utilization of each
// locality. Its memory is bounded. It has no clock, lock or goroutine: the caller
// passes the time, and lets one goroutine at a time use a Ring.
package samples

import (
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
)

// The two resolutions of a Ring. Where their points do not fit into its memory, both
// steps double until they do, and the numbers of points halve.
const (
	FineStep   = 5 * time.Second
	FineSpan   = time.Hour
	CoarseStep = time.Minute
	CoarseSpan = 24 * time.Hour

	// MaxScale bounds the doublings: at 5, the steps are 160 s and 32 min.
	MaxScale = 5
)

// DefaultBudget is the memory of a Ring in bytes.
const DefaultBudget = 64 << 20

// The approximate bytes of a service and of one of its rows, without their points.
const (
	serviceBytes = 256
	rowBytes     = 16
)

// Values is what is sampled of a service. Demand is in requests/s, all others are
// fractions.
type Values struct {
	Demand      float64
	Drop        float64
	Gap         float64 // largest possible distance of the served assignment from the optimum
	CrossZone   float64 // fraction that is served in another zone, including other regions
	CrossRegion float64
}

// maxGone is how many times as many localities as it has a service may have had
// before its samples restart.
const maxGone = 4

// measures is the number of fields of Values, which are the first rows of a service.
const measures = 5

func (v *Values) row(i int) *float64 {
	return [measures]*float64{&v.Demand, &v.Drop, &v.Gap, &v.CrossZone, &v.CrossRegion}[i]
}

// Site is the utilization of a locality of a service.
type Site struct {
	Locality    isobar.Locality
	Utilization float64
}

// Service is one sample of a service.
type Service struct {
	Name   string // "" = all services together
	Values Values
	Sites  []Site
}

// Ring holds the samples.
type Ring struct {
	budget   int
	scale    uint
	axes     [2]axis // fine and coarse
	services map[string]*series
	known    map[isobar.Locality]*isobar.Locality // each is held once
	omitted  int
}

// series are the samples of a service. Of each axis it holds the codes of all rows for
// a slot side by side.
type series struct {
	name  string
	sites []*isobar.Locality // the rows after the measures, in the order in which they came
	codes [2][]uint16
	seen  int64 // when it was last sampled, in seconds since 1970
}

func (s *series) rows() int { return measures + len(s.sites) }

func (s *series) index(l *isobar.Locality) int {
	return slices.IndexFunc(s.sites, func(x *isobar.Locality) bool { return *x == *l })
}

// intern returns the one copy of a locality that all services share.
func (r *Ring) intern(l *isobar.Locality) *isobar.Locality {
	if x := r.known[*l]; x != nil {
		return x
	}
	x := *l
	r.known[x] = &x
	return &x
}

// NewRing makes a Ring of at most budget bytes; 0 = DefaultBudget.
func NewRing(budget int) *Ring {
	if budget <= 0 {
		budget = DefaultBudget
	}
	r := &Ring{budget: budget, services: map[string]*series{}, known: map[isobar.Locality]*isobar.Locality{}}
	r.axes = [2]axis{newAxis(FineStep, FineSpan, 0), newAxis(CoarseStep, CoarseSpan, 0)}
	return r
}

// Step is the resolution of the last hour, which grows with the number of localities.
func (r *Ring) Step() time.Duration { return time.Duration(r.axes[0].step) * time.Second }

// Bytes is the approximate memory of all samples.
func (r *Ring) Bytes() int {
	sum := 0
	for _, s := range r.services { //isobar:sorted a sum of integers
		sum += r.cost(s.name, s.rows(), r.scale)
	}
	return sum
}

// cost is the memory of a service with so many rows.
func (r *Ring) cost(name string, rows int, scale uint) int {
	points := int(FineSpan/FineStep)>>scale + int(CoarseSpan/CoarseStep)>>scale
	return serviceBytes + len(name) + rows*(rowBytes+2*points)
}

// Add takes what stands at a time. Several samples of one step leave the last of
// them. A time before the newest sample removes the samples after it, so that a clock
// that was set back is followed at once.
func (r *Ring) Add(at time.Time, services []Service) {
	now := at.Unix()
	r.fit(now, services)
	if coarse := &r.axes[1]; coarse.any && coarse.slot(now) > coarse.last {
		r.fold() // while the fine samples of the last coarse slot are still there
	}
	for i := range r.axes {
		r.advance(i, r.axes[i].slot(now))
	}
	fine := &r.axes[0]
	for i := range services {
		s := r.services[services[i].Name]
		if s == nil {
			continue // it did not fit
		}
		s.seen = now
		s.write(s.at(0, fine, fine.last), &services[i])
	}
}

// at returns the codes of a slot.
func (s *series) at(axis int, a *axis, slot int64) []uint16 {
	n := s.rows()
	i := a.place(slot) * n
	return s.codes[axis][i : i+n]
}

func (s *series) write(codes []uint16, v *Service) {
	clear(codes)
	for i := range measures {
		codes[i] = encode(*v.Values.row(i))
	}
	for i := range v.Sites {
		// They come in the same order nearly always.
		k := i
		if k >= len(s.sites) || *s.sites[k] != v.Sites[i].Locality {
			k = s.index(&v.Sites[i].Locality)
		}
		codes[measures+k] = encode(v.Sites[i].Utilization)
	}
}

// advance makes a slot the newest of an axis: what lies between and after it is
// missing.
func (r *Ring) advance(axis int, slot int64) {
	a := &r.axes[axis]
	from, to := a.last+1, slot
	switch {
	case !a.any:
		from, a.first, a.any = slot, slot, true
	case slot < a.last:
		from, to = slot+1, a.last // the clock was set back
		a.first = min(a.first, slot)
	}
	a.last = slot
	from = max(from, to-int64(a.points)+1)
	for s := from; s <= to; s++ {
		for _, x := range r.services { //isobar:sorted each by itself
			clear(x.at(axis, a, s))
		}
	}
}

// fold writes the newest coarse slot: means of the fine ones within it.
func (r *Ring) fold() {
	fine, coarse := &r.axes[0], &r.axes[1]
	ratio := coarse.step / fine.step
	begin := coarse.last * ratio
	for _, s := range r.services { //isobar:sorted each by itself
		out := s.at(1, coarse, coarse.last)
		for row := range out {
			var m mean
			for slot := begin; slot < begin+ratio; slot++ {
				if fine.holds(slot) {
					m.add(s.at(0, fine, slot)[row])
				}
			}
			out[row] = m.code()
		}
	}
}

// fit frees memory for all services that are sampled: services that are gone leave, longest gone
// first, then the steps double. Services that still do not fit are omitted.
func (r *Ring) fit(now int64, services []Service) {
	total := r.grow(services)
	total -= r.leave(now, r.axes[1].step*int64(r.axes[1].points), total)
	for total > r.budget && r.scale < MaxScale {
		r.rescale(r.scale + 1)
		total = r.Bytes()
	}
	if r.scale > 0 && total < r.budget {
		if finer := r.bytesAt(r.scale - 1); finer <= r.budget/2 { // half: so that it does not oscillate
			r.rescale(r.scale - 1)
		}
	}
	r.omitted = 0
	for i := len(services) - 1; i >= 0 && total > r.budget; i-- {
		if s := r.services[services[i].Name]; s != nil && s.name != "" {
			total -= r.cost(s.name, s.rows(), r.scale)
			delete(r.services, s.name)
			r.omitted++
		}
	}
	for i := range services {
		if s := r.services[services[i].Name]; s != nil {
			s.allocate(&r.axes)
		}
	}
}

func (r *Ring) bytesAt(scale uint) int {
	sum := 0
	for _, s := range r.services { //isobar:sorted a sum of integers
		sum += r.cost(s.name, s.rows(), scale)
	}
	return sum
}

// grow notes services and localities that are new, without memory for them yet, and
// returns the bytes of all.
func (r *Ring) grow(services []Service) int {
	for i := range services {
		v := &services[i]
		s := r.services[v.Name]
		if s == nil || len(s.sites) > maxGone*(len(v.Sites)+1) {
			s = &series{name: strings.Clone(v.Name)}
			r.services[s.name] = s
		}
		for k := range v.Sites {
			l := &v.Sites[k].Locality
			if k < len(s.sites) && *s.sites[k] == *l {
				continue
			}
			if s.index(l) < 0 {
				s.sites = append(s.sites, r.intern(l))
			}
		}
	}
	return r.Bytes()
}

// leave removes services that have no sample within span, and those gone longest
// while all together need more than the budget. It returns the bytes that it freed.
func (r *Ring) leave(now, span int64, total int) int {
	var gone []*series
	for _, s := range r.services { //isobar:sorted they are sorted below
		if r.axes[0].any && s.codes[0] != nil && s.seen < r.axes[0].last*r.axes[0].step {
			gone = append(gone, s)
		}
	}
	slices.SortFunc(gone, func(a, b *series) int {
		if a.seen != b.seen {
			return int(a.seen - b.seen)
		}
		return strings.Compare(a.name, b.name)
	})
	freed := 0
	for _, s := range gone {
		if total-freed > r.budget || s.seen < now-span {
			freed += r.cost(s.name, s.rows(), r.scale)
			delete(r.services, s.name)
		}
	}
	return freed
}

// allocate gives a service the memory of its rows, and keeps its samples when it has
// more localities than before. Slots without a sample are missing.
func (s *series) allocate(axes *[2]axis) {
	rows := s.rows()
	for i := range axes {
		points := axes[i].points
		if len(s.codes[i]) == points*rows {
			continue
		}
		next := make([]uint16, points*rows)
		if before := len(s.codes[i]) / points; before > 0 {
			for slot := range points {
				copy(next[slot*rows:], s.codes[i][slot*before:(slot+1)*before])
			}
		}
		s.codes[i] = next
	}
}

// Series is what a Ring holds of a service at one resolution. All slices have the same
// length; NaN stands for a missing value.
type Series struct {
	Begin  time.Time // of the first step, in UTC
	Step   time.Duration
	Values []Values
	Sites  []SiteSeries // sorted
}

// SiteSeries is the utilization of a locality.
type SiteSeries struct {
	Locality    isobar.Locality
	Utilization []float64
}

// Series returns the last hour of a service, or with coarse the last day; false if
// there is no sample of it. A coarse step that is not over is not part of it.
func (r *Ring) Series(service string, coarse bool) (Series, bool) {
	i := 0
	if coarse {
		i = 1
	}
	s, a := r.services[service], &r.axes[i]
	if s == nil || !a.any || s.codes[i] == nil {
		return Series{}, false
	}
	begin, end := a.begin(), a.last
	if coarse {
		end--
	}
	out := Series{
		Begin: time.Unix(begin*a.step, 0).UTC(), Step: time.Duration(a.step) * time.Second,
		Values: make([]Values, max(0, end-begin+1)), Sites: make([]SiteSeries, len(s.sites)),
	}
	for k, l := range s.sites {
		out.Sites[k] = SiteSeries{Locality: *l, Utilization: make([]float64, len(out.Values))}
	}
	for j := range out.Values {
		codes := s.at(i, a, begin+int64(j))
		for m := range measures {
			*out.Values[j].row(m) = decode(codes[m])
		}
		for k := range s.sites {
			out.Sites[k].Utilization[j] = decode(codes[measures+k])
		}
	}
	slices.SortFunc(out.Sites, func(a, b SiteSeries) int { return a.Locality.Compare(b.Locality) })
	return out, true
}
