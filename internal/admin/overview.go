package admin

import (
	"math"
	"net/http"
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Overview is the body of GET /v1/overview: the status, and a line for each
// service. Rates are requests/s, shares and utilizations fractions.
type Overview struct {
	Status   Status            `json:"status"`
	Services []ServiceOverview `json:"services"` // sorted by name
}

// ServiceOverview is a service in one line.
type ServiceOverview struct {
	Name   string      `json:"name"`
	Mode   isobar.Mode `json:"mode"`
	Serves isobar.Mode `json:"serves"` // the mode itself, or the step of mode auto
	Demand float64     `json:"demand"`
	// Fullest is the locality with the highest planned utilization, of those that have capacity; nil
	// if none has.
	Fullest   *FullestLocality `json:"fullest,omitempty"`
	Healthy   int              `json:"healthy"`   // endpoints that take traffic
	Draining  int              `json:"draining"`  // endpoints that an operator, the configuration or a provider takes out of traffic: not a failure
	Endpoints int              `json:"endpoints"` // all
	// Shift is the fraction of the demand that does not go to the nearest locality that takes
	// traffic; Moving is the fraction whose shares still differ from their targets.
	Shift        float64     `json:"shift"`
	Moving       float64     `json:"moving"`
	Drop         float64     `json:"drop"` // fraction that assignments make clients drop
	Hold         string      `json:"hold,omitempty"`
	Paused       *plan.Pause `json:"paused,omitempty"`
	Solved       bool        `json:"solved"` // false: without demand; then Gap is 0
	Gap          float64     `json:"gap"`    // largest possible distance of the served assignment from the optimum
	CeilingScale float64     `json:"ceiling_scale"`
	Coverage     float64     `json:"coverage"`
	Score        *float64    `json:"score,omitempty"` // of predictions compared with observations; nil while data is insufficient

	// Where requests are served according to the published shares, and the cost of this.
	CrossZone   float64 `json:"cross_zone"`   // fraction that is served in another zone than the client's, including other regions
	CrossRegion float64 `json:"cross_region"` // fraction that is served in another region
	EgressMS    float64 `json:"egress_ms"`    // mean egress price of a request, in milliseconds
	// P99MS estimates the 99th percentile of network latency plus queueing delay, with an M/M/c
	// queue for each locality, as in the solver. 0 without demand.
	P99MS float64 `json:"p99_ms"`
}

// FullestLocality is a locality with its planned utilization and its ceiling.
type FullestLocality struct {
	Locality    isobar.Locality `json:"locality"`
	Utilization float64         `json:"utilization"`
	Ceiling     float64         `json:"ceiling"`
}

// getOverview answers GET /v1/overview, also before the first plan.
func (s *statusAPI) getOverview(w http.ResponseWriter, r *http.Request) {
	p := s.opts.Planner.Current()
	out := Overview{Status: s.status(r.Context(), p), Services: []ServiceOverview{}}
	if p != nil {
		lines := newOverviews(p, s.opts.Fleet.Subscribers())
		for _, svc := range p.Services {
			out.Services = append(out.Services, lines.line(svc, lines.silentOf(svc)))
		}
	}
	reply(w, http.StatusOK, out)
}

// overviews makes the lines of the services of one plan. The lists are used for one
// service after the other.
type overviews struct {
	distances

	silent []ServiceClients // those with silent clients, sorted by service
	usable []bool           // per site
	queues []queue          // per site
	flows  []flow
}

// newOverviews takes the clients of all services, sorted by service.
func newOverviews(p *plan.Plan, clients []ServiceClients) *overviews {
	return &overviews{distances: distances{network: networkOf(p)}, silent: silentOnly(clients)}
}

// distances are those between the sources and the localities of a service. Most services
// of a fleet have the same ones, so that a look at 10,000 services looks up a few hundred
// latencies instead of millions.
type distances struct {
	network  *isobar.Network
	from, to []isobar.Locality
	ms       []float64 // one row per source
}

// take looks up the distances of a service, unless they are those of the service before.
func (d *distances) take(r *assign.Result) {
	same := len(d.from) == len(r.Sources) && len(d.to) == len(r.Sites)
	for i := 0; same && i < len(d.from); i++ {
		same = d.from[i] == r.Sources[i].Source
	}
	for l := 0; same && l < len(d.to); l++ {
		same = d.to[l] == r.Sites[l].Group.Locality
	}
	if same {
		return
	}
	d.from, d.to, d.ms = d.from[:0], d.to[:0], d.ms[:0]
	for l := range r.Sites {
		d.to = append(d.to, r.Sites[l].Group.Locality)
	}
	for i := range r.Sources {
		d.from = append(d.from, r.Sources[i].Source)
		for _, to := range d.to {
			ms, _ := d.network.Latency(r.Sources[i].Source, to)
			d.ms = append(d.ms, ms)
		}
	}
}

// of returns the distances from a source to each locality, in milliseconds.
func (d *distances) of(source int) []float64 {
	return d.ms[source*len(d.to) : (source+1)*len(d.to)]
}

func (m *overviews) silentOf(svc *plan.Service) []plan.SilentClients {
	return SilentOf(m.silent, svc.Spec.Name)
}

// line is a service in one line. It follows from the service, its silent clients and the
// network alone.
func (m *overviews) line(svc *plan.Service, silent []plan.SilentClients) ServiceOverview {
	out := ServiceOverview{
		Name: svc.Spec.Name, Mode: svc.Spec.Mode, Serves: svc.Mode(), Hold: svc.Hold, Paused: svc.Paused,
		Coverage: svc.CoverageBesides(silent),
		Gap:      svc.PlanGap, CeilingScale: 1,
	}
	if svc.Solution != nil {
		out.Solved, out.CeilingScale = true, max(1, svc.Solution.CeilingScale)
	}
	if score, ok := svc.Scores.Score(svc.Mode()); ok {
		out.Score = &score
	}
	if svc.Result == nil {
		return out
	}
	out.Drop = svc.Result.Drop
	m.take(svc.Result)
	out.sites(svc.Result)
	m.sources(&out, svc.Result)
	m.served(&out, svc)
	return out
}

// sites counts endpoints, and finds the fullest locality.
func (o *ServiceOverview) sites(r *assign.Result) {
	fullest, most := -1, 0.0
	for i := range r.Sites {
		site := &r.Sites[i]
		o.Healthy += site.Group.Usable()
		o.Draining += site.Group.Draining()
		o.Endpoints += len(site.Group.Endpoints)
		if site.Capacity <= 0 {
			continue
		}
		if used := (at(r.Load, i) + site.Unmanaged) / site.Capacity; fullest < 0 || used > most {
			fullest, most = i, used
		}
	}
	if fullest >= 0 {
		site := &r.Sites[fullest]
		o.Fullest = &FullestLocality{Locality: site.Group.Locality, Utilization: most, Ceiling: site.Ceiling}
	}
}

// sources sums what the sources send: by demand, or where there is none, each
// alike.
func (m *overviews) sources(o *ServiceOverview, result *assign.Result) {
	m.usable = m.usable[:0]
	for l := range result.Sites {
		m.usable = append(m.usable, result.Sites[l].Usable())
	}
	var plain, weighted [2]float64 // shift and moving
	for i := range result.Sources {
		r := &result.Sources[i]
		o.Demand += r.Demand
		away, moving := away(r.Shares, m.of(i), m.usable), 0.0
		for l, share := range r.Shares {
			if len(r.Want) == len(r.Shares) {
				moving += max(0, r.Want[l]-share)
			}
		}
		for k, x := range []float64{away, moving} {
			plain[k] += x
			weighted[k] += x * r.Demand
		}
	}
	switch {
	case o.Demand > 0:
		o.Shift, o.Moving = weighted[0]/o.Demand, weighted[1]/o.Demand
	case len(result.Sources) > 0:
		n := float64(len(result.Sources))
		o.Shift, o.Moving = plain[0]/n, plain[1]/n
	}
}

// away is the share of a source's traffic that does not go to the nearest
// localities that take any, of which there may be several at the same distance.
func away(shares, distances []float64, usable []bool) float64 {
	nearest, stays, all := -1.0, 0.0, 0.0
	for l, ms := range distances {
		all += at(shares, l)
		switch {
		case !usable[l]:
		case nearest < 0 || ms < nearest:
			nearest, stays = ms, at(shares, l)
		case ms == nearest:
			stays += at(shares, l)
		}
	}
	if nearest < 0 {
		return 0
	}
	return max(0, all-stays)
}

// flow is what one source sends to one locality.
type flow struct {
	queue

	rate    float64 // requests/s
	network float64 // ms
}

// queue shows how requests wait in a locality.
type queue struct {
	known bool
	waits float64 // part of the requests that wait
	mean  float64 // ms, of the wait of those that do
}

// served tells where the requests of a service are served; its result must be there.
func (m *overviews) served(o *ServiceOverview, svc *plan.Service) {
	m.flows = m.flows[:0]
	m.queues = slices.Grow(m.queues[:0], len(svc.Result.Sites))[:len(svc.Result.Sites)]
	clear(m.queues)
	var all, zone, region, price float64
	for i := range svc.Result.Sources {
		r, distances := &svc.Result.Sources[i], m.of(i)
		for l := range svc.Result.Sites {
			rate := r.Demand * at(r.Shares, l)
			if rate <= 0 {
				continue
			}
			if !m.queues[l].known {
				m.queues[l] = queueOf(svc, l)
			}
			to := svc.Result.Sites[l].Group.Locality
			m.flows = append(m.flows, flow{queue: m.queues[l], rate: rate, network: distances[l]})
			all += rate
			price += rate * m.network.Price(r.Source, to)
			switch {
			case r.Source.Region != to.Region:
				region += rate
				zone += rate
			case r.Source.Zone != to.Zone:
				zone += rate
			}
		}
	}
	if all > 0 {
		o.CrossZone, o.CrossRegion, o.EgressMS, o.P99MS = zone/all, region/all, price/all, percentile(m.flows, all, 0.99)
	}
}

// maxQueued is the utilization above which the solver's queues go on as their
// tangent; a locality has no steady state near 1.
const maxQueued = 0.98

// queueOf returns how requests wait in a locality: not at all where no queue is known.
func queueOf(svc *plan.Service, locality int) queue {
	none := queue{known: true}
	if svc.Problem == nil || len(svc.Problem.Localities) != len(svc.Result.Sites) {
		return none
	}
	l := &svc.Problem.Localities[locality]
	if l.Servers <= 0 || l.Capacity <= 0 {
		return none
	}
	used := min(maxQueued, (at(svc.Result.Load, locality)+svc.Result.Sites[locality].Unmanaged)/l.Capacity)
	if used <= 0 {
		return none
	}
	queues := max(1, l.Queues)
	return queue{known: true, waits: math.Pow(used, math.Sqrt(2*(l.Servers/queues+1))-1), mean: 1000 * queues / (l.Capacity * (1 - used))}
}

// percentile is the latency that only the part 1-p of the requests exceeds.
func percentile(flows []flow, all, p float64) float64 {
	slower := func(x float64) float64 {
		sum := 0.0
		for i := range flows {
			switch f := &flows[i]; {
			case f.network > x:
				sum += f.rate
			case f.waits > 0:
				sum += f.rate * f.waits * math.Exp(-(x-f.network)/f.mean)
			}
		}
		return sum / all
	}
	low, high := 0.0, 1.0
	for range 40 { // to 10^12 ms
		if slower(high) <= 1-p {
			break
		}
		low, high = high, 2*high
	}
	if low == 0 && slower(0) <= 1-p {
		return 0
	}
	for range 14 { // to a part in 10,000
		if mid := (low + high) / 2; slower(mid) <= 1-p {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}
