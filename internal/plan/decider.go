package plan

import (
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
)

// Decider carries what is measured from turn to turn: the loop without its
// clock and its streams. It is owned by one goroutine.
type Decider struct {
	table     *load.Table
	adherence *load.Adherence
	learning  *load.Capacities
	limits    *load.Dimensions
	observed  *experience
}

// NewDecider makes a decider that knows the demand of an earlier process. now
// is when this process began to listen for reports.
func NewDecider(interval time.Duration, saved []load.Saved, now time.Time) *Decider {
	settings := load.Settings{Interval: interval}
	return &Decider{
		table: load.NewTable(settings, saved, now), adherence: load.NewAdherence(settings),
		learning: load.NewCapacities(settings), limits: load.NewDimensions(settings), observed: newExperience(),
	}
}

// SetLoadMemory sets how much memory the load of all clients may use, in bytes; see [load.Table.SetMemory].
func (d *Decider) SetLoadMemory(bytes int) { d.table.SetMemory(bytes) }

// LoadMemory returns how much memory the load of clients uses.
func (d *Decider) LoadMemory() load.Memory { return d.table.Memory() }

// Tick takes a decision: it books what was reported, compares it with what was
// planned, and plans again.
func (d *Decider) Tick(t *Turn) (*Plan, error) {
	d.table.SetInterval(t.Interval)
	d.adherence.SetInterval(t.Interval)
	d.learning.SetInterval(t.Interval)
	d.limits.SetInterval(t.Interval)
	d.table.SetTopology(t.Topology)
	d.table.Merge(t.Windows)
	d.table.SetSubscribed(t.Subscribed, t.Now)
	snapshot := d.table.Snapshot(t.Now)
	in := t.tick(snapshot)
	in.News, in.Scoring = true, true
	d.forget(t.Previous)
	for i := range snapshot.Services {
		s := &snapshot.Services[i]
		before, ok := t.Previous.Service(s.Name)
		if !ok {
			continue
		}
		capacity, sites := knownSites(before)
		d.table.SetCapacity(s.Name, capacity)
		d.adherence.SetSites(s.Name, sites)
		found := d.adherence.Observe(t.Now, s, plannedSources(before, t.Subscribed))
		d.adherence.Name(&found, d.table)
		in.Deviations = append(in.Deviations, found)
		d.learning.Adopt(s.Name, before.Learned)
		d.limits.Adopt(s.Name, before.Dimensions)
		known := LearnedService{Service: s.Name, Localities: d.learning.Observe(t.Now, s, sites)}
		known.Observed = d.observed.observe(t.Now, t.Interval, s, before)
		if spec, ok := t.Topology.Service(s.Name); ok {
			known.Dimensions = d.limits.Observe(t.Now, s, spec.Limits, sites)
		}
		if len(known.Localities)+len(known.Dimensions)+len(known.Observed) > 0 {
			in.Learned = append(in.Learned, known)
		}
	}
	return Next(in)
}

// Reapply carries the current weights over to the turn's topology and health,
// without a decision.
func (d *Decider) Reapply(t *Turn) (*Plan, error) {
	p, err := Next(t.input(assign.Reapply))
	if err == nil && t.Previous != nil {
		d.remember(t, p)
	}
	return p, err
}

// remember lets the evidence know what was in force of services that change
// without a tick: clients will report what they did under it.
func (d *Decider) remember(t *Turn, next *Plan) {
	for _, before := range t.Previous.Services {
		if after, ok := next.Service(before.Spec.Name); ok && after != before {
			d.adherence.Note(t.Now, before.Spec.Name, plannedSources(before, t.Subscribed))
		}
	}
}

// forget drops the evidence about services that are gone. An idle service is in
// no snapshot, but as long as it is planned it may come back.
func (d *Decider) forget(p *Plan) {
	for _, name := range d.adherence.Services() {
		if _, ok := p.Service(name); !ok {
			d.adherence.Forget(name)
		}
	}
	for _, name := range d.learning.Services() {
		if _, ok := p.Service(name); !ok {
			d.learning.Forget(name)
		}
	}
	planned := func(name string) bool {
		_, ok := p.Service(name)
		return ok
	}
	d.limits.Retain(planned)
	d.observed.retain(planned)
}

// plannedSources tells the evidence what each source of a service should be doing,
// and since when enough of its streams obey. subscribed is sorted.
func plannedSources(s *Service, subscribed []load.Subscription) []load.PlannedSource {
	from, _ := slices.BinarySearchFunc(subscribed, s.Spec.Name, func(x load.Subscription, n string) int { return strings.Compare(x.Service, n) })
	subscribed = subscribed[from:]
	out := make([]load.PlannedSource, 0, len(s.Result.Sources))
	for i := range s.Result.Sources {
		r := &s.Result.Sources[i]
		p := load.PlannedSource{Source: r.Source}
		for l, share := range r.Shares {
			if share > 0 {
				p.Shares = append(p.Shares, load.PlannedShare{Locality: s.Sites[l].Group.Locality, Share: share})
			}
		}
		// Both lists are sorted by source.
		for len(subscribed) > 0 && subscribed[0].Service == s.Spec.Name && subscribed[0].Source.Compare(r.Source) < 0 {
			subscribed = subscribed[1:]
		}
		if len(subscribed) > 0 && subscribed[0].Service == s.Spec.Name && subscribed[0].Source == r.Source {
			p.Streams, p.Acked = subscribed[0].Streams, subscribed[0].AckedAt
		}
		out = append(out, p)
	}
	return out
}

// knownSites tells load table and evidence what they may know of the service: where
// it has how much, and what it can serve in all. capacity is in requests/s and
// 0 unless all of it is declared.
func knownSites(s *Service) (capacity float64, sites []load.Site) {
	sites = make([]load.Site, len(s.Sites))
	all := true
	for i := range s.Sites {
		site := &s.Sites[i]
		sites[i] = load.Site{
			Locality: site.Group.Locality, Endpoints: len(site.Group.Endpoints),
			Usable: site.Group.Usable(), Capacity: s.Site(i).declared(), Units: s.Site(i).units(), Given: site.Capacity,
		}
		s.Site(i).addLimits(&sites[i])
		capacity += sites[i].Capacity
		all = all && (sites[i].Capacity > 0 || sites[i].Usable == 0)
	}
	if !all {
		capacity = 0
	}
	return capacity, sites
}

// awaitsClients is why a provisional plan holds.
const awaitsClients = "all plans of the group are lost: waiting for load reports of the clients that have one"

func awaitClients(s *Service) {
	if s.Hold == "" {
		s.Hold = awaitsClients
	}
}

// Gather books what was reported and decides nothing. It returns what clients do, as if
// that had been the last plan, and what fraction of them has reported; see
// [load.Table.Returned]. A provisional plan is followed by one that goes on from there.
func (d *Decider) Gather(t *Turn) (observed Saved, returned float64) {
	d.table.SetInterval(t.Interval)
	d.table.SetTopology(t.Topology)
	d.table.Merge(t.Windows)
	t.sortSubscribed()
	d.table.SetSubscribed(t.Subscribed, t.Now)
	snapshot := d.table.Snapshot(t.Now)
	observed = Saved{Version: t.Previous.Version, Made: t.Now, Paused: t.Paused}
	for i := range snapshot.Services {
		if s := savedFrom(&snapshot.Services[i]); len(s.Sources) > 0 {
			observed.Services = append(observed.Services, s)
		}
	}
	return observed, d.table.Returned(t.Now)
}

// showsShare reports whether requests that landed in a locality show the share that their
// clients have for it: those of a failover tier do not.
func showsShare(l *load.LandedLoad) bool { return l.Priority == 0 && l.Issued > 0 }

// savedFrom returns what the clients of a service do: what each source sends, and the
// shares that its requests to priority 0 have.
func savedFrom(l *load.ServiceLoad) SavedService {
	out := SavedService{Name: l.Name}
	for i := range l.Sources {
		for j := range l.Sources[i].Landed {
			if landed := &l.Sources[i].Landed[j]; showsShare(landed) {
				out.Sites = append(out.Sites, landed.Locality)
			}
		}
	}
	slices.SortFunc(out.Sites, isobar.Locality.Compare)
	out.Sites = slices.Compact(out.Sites)
	for i := range l.Sources {
		src := &l.Sources[i]
		shares, all := make([]float64, len(out.Sites)), 0.0
		for j := range src.Landed {
			if landed := &src.Landed[j]; showsShare(landed) {
				at, _ := slices.BinarySearchFunc(out.Sites, landed.Locality, isobar.Locality.Compare)
				shares[at] += landed.Issued
				all += landed.Issued
			}
		}
		if all <= 0 {
			continue
		}
		for j := range shares {
			shares[j] /= all
		}
		out.Sources = append(out.Sources, SavedSource{Source: src.Source, Demand: src.Demand, Unproven: src.Claimed, Variability: src.Variability, Shares: shares})
	}
	return out
}
