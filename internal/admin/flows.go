package admin

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// FlowList is the body of GET /v1/flows: which rate all services together send from
// which places to which, by the published shares. Places are regions, or with ?from=
// or ?to= the zones of those regions.
type FlowList struct {
	Version string      `json:"version"`
	Places  []FlowPlace `json:"places"` // sorted by name
	Flows   []Flow      `json:"flows"`  // sorted by from, then to; those without requests are left out
}

// FlowPlace is a region or a zone.
type FlowPlace struct {
	Place  isobar.Locality `json:"place"` // zero: clients that told no locality
	Sends  float64         `json:"sends"` // requests/s of the clients there that are served
	Serves float64         `json:"serves"`
	// Reserve tells of the loss of this zone, or of each zone of this region; nil where
	// nobody looked.
	Reserve *PlaceReserve `json:"reserve,omitempty"`
}

// PlaceReserve tells which services have a zone of a place as their worst loss.
type PlaceReserve struct {
	Worst   int            `json:"worst"`   // services whose worst loss it is
	Failing int            `json:"failing"` // of them, those that would not stand it
	Names   []plan.Reserve `json:"names"`   // of those, at most maxHolds, sorted by name
}

// Flow is what is sent from one place to another.
type Flow struct {
	From    isobar.Locality `json:"from"`
	To      isobar.Locality `json:"to"`
	Rate    float64         `json:"rate"`     // requests/s
	PriceMS float64         `json:"price_ms"` // mean egress price of a request, in the milliseconds that it is weighed as
}

// zoneFlows are the flows of a plan between zones. Immutable.
type zoneFlows struct {
	of    *plan.Plan
	zones []isobar.Locality
	rates [][]float64 // by from, to; requests/s
	cost  [][]float64 // rate x price
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

// grow makes room for zones that are new.
func (f *zoneFlows) grow() {
	n := len(f.zones)
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
	out := FlowList{Version: f.of.VersionString(), Places: []FlowPlace{}, Flows: []Flow{}}
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

// reserves adds what the loss of zones would do.
func (l *FlowList) reserves(at time.Time, services []plan.Reserve) {
	if at.IsZero() {
		return
	}
	for i := range l.Places {
		p := &l.Places[i]
		p.Reserve = &PlaceReserve{Names: []plan.Reserve{}}
		for k := range services {
			s := &services[k]
			if s.Lost.Region != p.Place.Region || p.Place.Zone != "" && s.Lost.Zone != p.Place.Zone {
				continue
			}
			p.Reserve.Worst++
			if s.Stands() {
				continue
			}
			if p.Reserve.Failing++; len(p.Reserve.Names) < maxHolds {
				p.Reserve.Names = append(p.Reserve.Names, *s)
			}
		}
		slices.SortFunc(p.Reserve.Names, func(a, b plan.Reserve) int { return strings.Compare(a.Service, b.Service) })
	}
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
	out := s.flows.now(p).list(from, to, from != "" || to != "")
	out.reserves(s.opts.Planner.Reserves())
	reply(w, http.StatusOK, out)
}
