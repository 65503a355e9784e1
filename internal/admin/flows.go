package admin

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// FlowList is the body of GET /v1/flows: the rates of all services together between places, by the
// published shares. Places are regions, or with ?from= or ?to= the zones of those regions.
type FlowList struct {
	Version string      `json:"version"`
	Places  []FlowPlace `json:"places"` // sorted by name
	Flows   []Flow      `json:"flows"`  // sorted by from, then to; those without requests are left out
	Zones   []FlowZone  `json:"zones"`  // zones with endpoints, sorted; with ?to=, those of that region

	LossAgeSeconds *float64 `json:"loss_age_seconds,omitempty"` // of the plan for which the losses of zones were simulated; missing: none was
	LossOutdated   bool     `json:"loss_outdated,omitempty"`    // utilization or capacity has changed noticeably since: losses may have other effects
}

// FlowZone is a zone that can be lost.
type FlowZone struct {
	Zone   isobar.Locality `json:"zone"`
	Serves float64         `json:"serves"`         // requests/s, for clients everywhere
	Loss   *plan.ZoneLoss  `json:"loss,omitempty"` // missing: its loss was not simulated, for example because it serves nothing
}

// FlowPlace is a region or a zone.
type FlowPlace struct {
	Place  isobar.Locality `json:"place"` // zero: clients without a locality
	Sends  float64         `json:"sends"` // requests/s of the clients there that are served
	Serves float64         `json:"serves"`
	Hosts  bool            `json:"hosts"` // a service has endpoints there
}

// Flow is the traffic from one place to another.
type Flow struct {
	From    isobar.Locality `json:"from"`
	To      isobar.Locality `json:"to"`
	Rate    float64         `json:"rate"`     // requests/s
	PriceMS float64         `json:"price_ms"` // mean egress price of a request, in milliseconds
}

// zoneFlows are the flows of a plan between zones. Immutable.
type zoneFlows struct {
	of    *plan.Plan
	zones []isobar.Locality
	rates [][]float64 // by from, to; requests/s
	cost  [][]float64 // rate x price
	hosts []bool      // of each zone: a service has endpoints there
}

// flowCache keeps the flows of the newest plan that was asked for.
type flowCache struct {
	mu   sync.Mutex
	last *zoneFlows
}

func (c *flowCache) now(p *plan.Plan) *zoneFlows {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil || c.last.of != p {
		c.last = flowsBetween(p)
	}
	return c.last
}

// flowsBetween sums the flows of all services of a plan.
func flowsBetween(p *plan.Plan) *zoneFlows {
	f := &zoneFlows{of: p}
	index := map[isobar.Locality]int{}
	number := func(l isobar.Locality) int {
		zone := l.ZoneOnly()
		i, ok := index[zone]
		if !ok {
			i = len(f.zones)
			index[zone] = i
			f.zones = append(f.zones, zone)
		}
		return i
	}
	for _, svc := range p.Services {
		if svc.Result == nil {
			continue
		}
		to := make([]int, len(svc.Result.Sites))
		for i := range to {
			to[i] = number(svc.Result.Sites[i].Group.Locality)
			f.grow()
			f.hosts[to[i]] = true
		}
		for i := range svc.Result.Sources {
			r := &svc.Result.Sources[i]
			from := number(r.Source)
			f.grow()
			for l, share := range r.Shares {
				if rate := r.Demand * (1 - svc.Result.Drop) * share; rate > 0 {
					f.rates[from][to[l]] += rate
				}
			}
		}
	}
	f.grow()
	f.price(p)
	return f
}

// grow extends the matrix for zones that are new.
func (f *zoneFlows) grow() {
	n := len(f.zones)
	f.hosts = append(f.hosts, make([]bool, n-len(f.hosts))...)
	for len(f.rates) < n {
		f.rates = append(f.rates, nil)
	}
	for i, row := range f.rates {
		if len(row) < n {
			f.rates[i] = append(row, make([]float64, n-len(row))...)
		}
	}
}

func (f *zoneFlows) price(p *plan.Plan) {
	f.cost = make([][]float64, len(f.rates))
	for i, row := range f.rates {
		f.cost[i] = make([]float64, len(row))
		for j, rate := range row {
			if rate > 0 && p.Topology != nil {
				f.cost[i][j] = rate * p.Topology.Network.Price(f.zones[i], f.zones[j])
			}
		}
	}
}

// list returns the flows between regions or, if from or to are regions, between their zones.
func (f *zoneFlows) list(from, to string, zones bool) FlowList {
	type key struct{ from, to isobar.Locality }
	out := FlowList{Version: f.of.VersionString(), Places: []FlowPlace{}, Flows: []Flow{}, Zones: []FlowZone{}}
	place := func(l isobar.Locality) isobar.Locality {
		if zones {
			return l
		}
		return isobar.Locality{Region: l.Region}
	}
	flows, places := map[key]*Flow{}, map[isobar.Locality]*FlowPlace{}
	at := func(l isobar.Locality) *FlowPlace {
		if places[l] == nil {
			places[l] = &FlowPlace{Place: l}
		}
		return places[l]
	}
	for i, row := range f.rates {
		for j, rate := range row {
			a, b := f.zones[i], f.zones[j]
			if rate <= 0 || from != "" && a.Region != from || to != "" && b.Region != to {
				continue
			}
			k := key{place(a), place(b)}
			if flows[k] == nil {
				flows[k] = &Flow{From: k.from, To: k.to}
			}
			flows[k].Rate += rate
			flows[k].PriceMS += f.cost[i][j]
			at(k.from).Sends += rate
			at(k.to).Serves += rate
		}
	}
	for j, zone := range f.zones {
		if f.hosts[j] && (to == "" || zone.Region == to) {
			at(place(zone)).Hosts = true
		}
	}
	for _, x := range flows {
		x.PriceMS /= x.Rate
		out.Flows = append(out.Flows, *x)
	}
	for _, x := range places {
		out.Places = append(out.Places, *x)
	}
	slices.SortFunc(out.Flows, func(a, b Flow) int {
		if c := a.From.Compare(b.From); c != 0 {
			return c
		}
		return a.To.Compare(b.To)
	})
	slices.SortFunc(out.Places, func(a, b FlowPlace) int { return a.Place.Compare(b.Place) })
	return out
}

// hosting lists the zones of a region, or all, in which services have endpoints.
func (f *zoneFlows) hosting(region string, losses []plan.ZoneLoss) []FlowZone {
	out := []FlowZone{}
	for j, zone := range f.zones {
		if !f.hosts[j] || region != "" && zone.Region != region {
			continue
		}
		x := FlowZone{Zone: zone}
		for i := range f.rates {
			x.Serves += f.rates[i][j]
		}
		if i, ok := slices.BinarySearchFunc(losses, zone, func(z plan.ZoneLoss, l isobar.Locality) int { return z.Zone.Compare(l) }); ok {
			x.Loss = &losses[i]
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b FlowZone) int { return a.Zone.Compare(b.Zone) })
	return out
}

// getFlows answers GET /v1/flows: between regions, or with ?from=REGION or
// ?to=REGION between the zones of those.
func (s *statusAPI) getFlows(w http.ResponseWriter, r *http.Request) {
	p, ok := s.plan(w)
	if !ok {
		return
	}
	query := r.URL.Query()
	from, to := query.Get("from"), query.Get("to")
	flows := s.flows.now(p)
	out := flows.list(from, to, from != "" || to != "")
	at, losses, outdated := s.opts.Planner.Losses(p)
	out.Zones = flows.hosting(to, losses)
	if !at.IsZero() {
		age := seconds(time.Since(at))
		out.LossAgeSeconds, out.LossOutdated = &age, outdated
	}
	reply(w, http.StatusOK, out)
}
