package assign_test

import (
	"fmt"
	"math"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
)

// place is one locality of the world.
type place struct {
	at       isobar.Locality
	gone     bool
	health   []isobar.HealthStatus
	weights  []uint32 // of the endpoints
	nominal  float64
	ceiling  float64
	ignored  float64 // unmanaged load
	observed bool    // unreachable
}

// client is one source of the world.
type client struct {
	at     isobar.Locality
	demand float64
	gone   bool
	barred map[isobar.Locality]bool
	chosen map[isobar.Locality]bool
}

// world is a service with its sources; each change of it leads to an Input.
type world struct {
	isolation string // "", strict or nearest

	places  []place
	clients []client
	service isobar.Service
	prev    *assign.Result
	gain    float64
	trigger assign.Trigger
	hold    string
}

func distance(from, to isobar.Locality) float64 {
	var none *isobar.Network
	ms, _ := none.Latency(from, to)
	if from.Region != to.Region && !from.IsZero() {
		ms += float64(len(from.Region)+3*len(to.Zone)) + float64(to.Region[len(to.Region)-1]) // not all regions are alike
	}
	return ms
}

func (w *world) sites() []assign.Site {
	var out []assign.Site
	for i, p := range w.places {
		if p.gone {
			continue
		}
		g := &isobar.EndpointGroup{Locality: p.at}
		healthy := 0
		for k, h := range p.health {
			g.Endpoints = append(g.Endpoints, isobar.WeightedEndpoint{Address: fmt.Sprintf("10.0.%d.%d:80", i, k), Weight: p.weights[k], Health: h})
			if h.Usable() {
				healthy++
			}
		}
		s := assign.Site{Group: g, Nominal: p.nominal, Ceiling: p.ceiling, Scale: 1, Unmanaged: p.ignored}
		if len(p.health) > 0 {
			s.Capacity = p.nominal * float64(healthy) / float64(len(p.health))
		}
		if p.observed {
			s.Unreachable, s.Capacity = true, 0
		}
		out = append(out, s)
	}
	return out
}

func (w *world) sources(sites []assign.Site) []assign.Source {
	var out []assign.Source
	for _, c := range w.clients {
		if c.gone {
			continue
		}
		s := assign.Source{Locality: c.at, Demand: c.demand}
		for _, site := range sites {
			s.Distance = append(s.Distance, distance(c.at, site.Group.Locality))
			s.Barred = append(s.Barred, c.barred[site.Group.Locality])
			s.Chosen = append(s.Chosen, c.chosen[site.Group.Locality])
		}
		w.isolate(&s, sites)
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b assign.Source) int { return a.Locality.Compare(b.Locality) })
	return out
}

// isolate keeps a source in its region: for good, or as long as the nearest
// region that has capacity lasts.
func (w *world) isolate(s *assign.Source, sites []assign.Site) {
	if s.Locality.IsZero() || w.isolation == "" {
		return
	}
	near := s.Locality.Region
	out := make([]bool, len(sites))
	if w.isolation == "nearest" {
		best := math.Inf(1)
		for l := range sites {
			if sites[l].Capacity > 0 && !sites[l].Unreachable && s.Distance[l] < best {
				best, near = s.Distance[l], sites[l].Group.Locality.Region
			}
		}
	}
	for l := range sites {
		out[l] = sites[l].Group.Locality.Region != near
	}
	if w.isolation == "strict" {
		s.Forbidden = out
	} else {
		s.Reserve = out
	}
}

func (w *world) input() assign.Input {
	sites := w.sites()
	sources := w.sources(sites)
	prices, shed := waterfall(sites, sources, w.service.MaxShed)
	w.service.Localities = localitiesOf(sites)
	svc := w.service
	return assign.Input{
		Service: &svc, Sites: sites, Sources: sources, Prices: prices, Shed: shed,
		Previous: w.prev, Trigger: w.trigger, Hold: w.hold, Gain: w.gain,
	}
}

// next takes one decision and returns it with what the checker says.
func (w *world) next() (assign.Input, *assign.Result, []invariant.Violation) {
	in := w.input()
	out := assign.Assign(in)
	bad := invariant.Check(w.prev, out, checkInput(in))
	w.prev = out
	return in, out, bad
}

var states = []isobar.HealthStatus{isobar.Healthy, isobar.Healthy, isobar.Healthy, isobar.Unknown, isobar.Unhealthy, isobar.Draining, isobar.Degraded, isobar.Timeout}

func drawWorld(t *rapid.T) *world {
	w := &world{service: isobar.Service{
		Name: "svc", Mode: rapid.SampledFrom([]isobar.Mode{isobar.ModeFull, isobar.ModeFull, isobar.ModeFull, isobar.ModeBounded, isobar.ModeObserve}).Draw(t, "mode"),
		MaxShift: rapid.SampledFrom([]float64{0, 5, 35}).Draw(t, "max_shift"),
		MaxShed:  rapid.SampledFrom([]float64{0, 0, 0.3}).Draw(t, "max_shed"),
	}}
	for i := range rapid.IntRange(1, 6).Draw(t, "places") {
		p := place{
			at:      isobar.Locality{Region: fmt.Sprintf("r%d", rapid.IntRange(0, 2).Draw(t, "region")), Zone: fmt.Sprintf("z%d", i)},
			nominal: rapid.Float64Range(10, 2000).Draw(t, "nominal"), ceiling: rapid.Float64Range(0.4, 1).Draw(t, "ceiling"),
		}
		for range rapid.IntRange(1, 4).Draw(t, "endpoints") {
			p.health = append(p.health, isobar.Healthy)
			p.weights = append(p.weights, rapid.SampledFrom([]uint32{1, 1, 1, 2, 1000, 1 << 29}).Draw(t, "weight"))
		}
		w.places = append(w.places, p)
	}
	slices.SortFunc(w.places, func(a, b place) int { return a.at.Compare(b.at) })
	for i := range rapid.IntRange(1, 5).Draw(t, "clients") {
		c := client{at: isobar.Locality{Region: fmt.Sprintf("r%d", rapid.IntRange(0, 2).Draw(t, "home")), Zone: fmt.Sprintf("z%d", i)}, barred: map[isobar.Locality]bool{}, chosen: map[isobar.Locality]bool{}}
		if i == 4 {
			c.at = isobar.Locality{}
		}
		c.demand = drawDemand(t)
		w.clients = append(w.clients, c)
	}
	return w
}

func drawDemand(t *rapid.T) float64 {
	if rapid.IntRange(0, 5).Draw(t, "idle") == 0 {
		return 0
	}
	return math.Exp(rapid.Float64Range(0, 7.5).Draw(t, "demand"))
}

// change lets something happen to the world.
func (w *world) change(t *rapid.T) {
	w.trigger, w.hold = assign.Tick, ""
	p := &w.places[rapid.IntRange(0, len(w.places)-1).Draw(t, "place")]
	c := &w.clients[rapid.IntRange(0, len(w.clients)-1).Draw(t, "client")]
	switch rapid.IntRange(0, 15).Draw(t, "event") {
	case 0:
		c.demand = drawDemand(t)
	case 1, 2:
		p.health[rapid.IntRange(0, len(p.health)-1).Draw(t, "endpoint")] = rapid.SampledFrom(states).Draw(t, "health")
		w.trigger = assign.Reapply
	case 3:
		for i := range p.health {
			p.health[i] = rapid.SampledFrom([]isobar.HealthStatus{isobar.Unhealthy, isobar.Healthy}).Draw(t, "all")
		}
	case 4:
		p.gone = !p.gone
		w.trigger = assign.Reapply
	case 5:
		c.gone = !c.gone
	case 6:
		if l := p.at; !p.gone {
			c.barred[l] = !c.barred[l]
		}
	case 7:
		w.observe(p)
	case 8:
		w.hold = "coverage 40%"
	case 9:
		w.service.Mode = rapid.SampledFrom([]isobar.Mode{isobar.ModeFull, isobar.ModeBounded, isobar.ModeObserve}).Draw(t, "mode")
	case 10:
		p.nominal = rapid.Float64Range(10, 2000).Draw(t, "nominal")
	case 11:
		p.ignored = rapid.Float64Range(0, 100).Draw(t, "unmanaged load")
	case 14:
		c.chosen[p.at] = !c.chosen[p.at]
	case 13:
		w.isolation = rapid.SampledFrom([]string{"", "strict", "nearest"}).Draw(t, "isolation")
	case 12:
		w.service.Assignment = drawSettings(t)
		w.trigger = rapid.SampledFrom([]assign.Trigger{assign.Tick, assign.Reapply}).Draw(t, "trigger")
	default: // one more quiet tick
	}
}

func drawSettings(t *rapid.T) isobar.AssignmentSettings {
	return isobar.AssignmentSettings{
		EndpointStaleAfter:     rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "stale_after"),
		OverprovisioningFactor: rapid.SampledFrom([]uint32{0, 100, 140, 200, isobar.MaxOverprovisioningFactor}).Draw(t, "factor"),
		WeightedPriorityHealth: rapid.Bool().Draw(t, "weighted"),
		ResourceTTL:            rapid.SampledFrom([]time.Duration{0, 10 * time.Second}).Draw(t, "ttl"),
	}
}

// observe makes a place unreachable, or reachable again, as long as at most
// half of the usable ones are.
func (w *world) observe(p *place) {
	usable, shut := 0, 0
	for i := range w.places {
		q := &w.places[i]
		if !q.gone && slices.ContainsFunc(q.health, isobar.HealthStatus.Usable) {
			usable++
			if q.observed || q == p {
				shut++
			}
		}
	}
	p.observed = !p.observed && 2*shut <= usable
}

// settle ends observations of places when health leaves too few usable ones, as
// the planner does.
func (w *world) settle() {
	usable, shut := 0, 0
	for i := range w.places {
		q := &w.places[i]
		if !q.gone && slices.ContainsFunc(q.health, isobar.HealthStatus.Usable) {
			usable++
			if q.observed {
				shut++
			}
		}
	}
	if 2*shut > usable {
		for i := range w.places {
			w.places[i].observed = false
		}
	}
}
