package sim

import (
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
)

// route is what a client does with its requests.
type route struct {
	endpoint []float64 // share of all its requests, per endpoint of the service
	site     []float64 // the same summed per site
	dropped  float64   // share that it drops as told
	lost     float64   // share for which it has no endpoint at all
}

func newRoute(s *service) *route {
	return &route{endpoint: make([]float64, len(s.endpoints)), site: make([]float64, len(s.sites)), lost: 1}
}

// add lets a share of the requests go to an endpoint.
func (r *route) add(s *service, endpoint int, share float64) {
	r.endpoint[endpoint] += share
	r.site[s.endpoints[endpoint].at] += share
	r.lost = max(0, r.lost-share)
}

// spread makes the route of a client that knows the endpoints' health and sends
// these shares to the sites, evenly over their usable endpoints. Shares of
// sites without any are spread over the others.
func (s *service) spread(shares []float64) *route {
	return s.spreadOver(shares, func(e int) bool { return s.endpoints[e].usable })
}

// spreadOver does the same over the endpoints that a client thinks usable.
func (s *service) spreadOver(shares []float64, thinks func(endpoint int) bool) *route {
	usable := make([]float64, len(s.sites))
	sum := 0.0
	for i := range s.sites {
		for e := s.sites[i].first; e < s.sites[i].end; e++ {
			if thinks(e) {
				usable[i]++
			}
		}
		if usable[i] > 0 {
			sum += shares[i]
		}
	}
	r := newRoute(s)
	if sum <= 0 {
		return r
	}
	for i := range s.sites {
		for e := s.sites[i].first; e < s.sites[i].end; e++ {
			if thinks(e) && shares[i] > 0 {
				r.add(s, e, shares[i]/sum/usable[i])
			}
		}
	}
	r.lost = 0
	return r
}

// exactly makes the route that realises flows, evenly over the endpoints that
// are up.
func (s *service) exactly(flows []float64, shed float64) *route {
	sum := shed
	for _, f := range flows {
		sum += f
	}
	r := newRoute(s)
	if sum <= 0 {
		return r
	}
	for i := range s.sites {
		up := 0.0
		for e := s.sites[i].first; e < s.sites[i].end; e++ {
			if s.endpoints[e].up {
				up++
			}
		}
		for e := s.sites[i].first; e < s.sites[i].end; e++ {
			if s.endpoints[e].up && flows[i] > 0 {
				r.add(s, e, flows[i]/sum/up)
			}
		}
	}
	r.dropped, r.lost = shed/sum, 0
	return r
}

// endpointGroup is a site as clients get it, with what is known about its
// endpoints.
func (s *service) endpointGroup(i int) *isobar.EndpointGroup {
	x := &s.sites[i]
	out := &isobar.EndpointGroup{Locality: x.locality}
	for e := x.first; e < x.end; e++ {
		h := isobar.Healthy
		if !s.endpoints[e].usable {
			h = isobar.Unhealthy
		}
		out.Endpoints = append(out.Endpoints, isobar.WeightedEndpoint{Address: s.endpoints[e].address, Weight: 1, Health: h})
	}
	return out
}

// knownRoute remembers what an assignment amounts to.
type knownRoute struct {
	assignment *isobar.Assignment
	kind       dataplane.Kind
	drop       float64
	route      *route
}

// maxRoutes bounds how many assignments of a group are remembered.
const maxRoutes = 16

// routeOf works out what clients of a kind and class do with an assignment.
func (g *group) routeOf(a *isobar.Assignment, kind dataplane.Kind, class isobar.Class) *route {
	drop := toldDrop(a, class)
	for i := range g.routes {
		if x := &g.routes[i]; x.assignment == a && x.kind == kind && x.drop == drop {
			return x.route
		}
	}
	r := predicted(g.service, a.Dropping(drop), kind)
	if len(g.routes) >= maxRoutes {
		g.routes = slices.Delete(g.routes, 0, 1)
	}
	g.routes = append(g.routes, knownRoute{a, kind, drop, r})
	return r
}

// predicted is what the data plane does with an assignment.
func predicted(s *service, a *isobar.Assignment, kind dataplane.Kind) *route {
	return predictedWith(s, a, kind, dataplane.DefaultOptions())
}

func predictedWith(s *service, a *isobar.Assignment, kind dataplane.Kind, o dataplane.Options) *route {
	r := newRoute(s)
	p := dataplane.PredictAssignment(a, kind, o)
	pass := p.PassPercent / 100
	for i := range p.Priorities {
		for j := range p.Priorities[i].Localities {
			l := &p.Priorities[i].Localities[j]
			at := slices.IndexFunc(s.sites, func(x site) bool { return x.locality == l.Locality })
			if at < 0 {
				continue
			}
			for k := range l.Endpoints {
				if share := l.Endpoints[k].Share; share > 0 {
					r.add(s, s.sites[at].first+k, pass*share)
				}
			}
		}
	}
	r.dropped = 1 - pass
	r.lost = max(0, r.lost-r.dropped)
	if r.lost < 1e-9 {
		r.lost = 0
	}
	return r
}

// seenBy is a site as the workers of a client see it after its ejections.
func (s *service) seenBy(c *client, i int) *isobar.EndpointGroup {
	out := s.endpointGroup(i)
	for j := range out.Endpoints {
		out.Endpoints[j].Health = isobar.Healthy
		if !c.listed(s.sites[i].first + j) {
			out.Endpoints[j].Health = isobar.Unhealthy
		}
	}
	return out
}
