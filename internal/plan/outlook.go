package plan

import "github.com/isobar-xds/isobar"

// Outlook is what the model of the solver says of a plan at the demand that it
// was made for, over some services.
type Outlook struct {
	Demand float64 `json:"demand"` // requests/s
	Shed   float64 `json:"shed"`   // requests/s of it that clients drop
	// Latency is the mean over the requests that are served, ms: network, service
	// and queues. 0 where nothing was solved.
	Latency     float64 `json:"latency_ms"`
	CrossZone   float64 `json:"cross_zone"`   // part of what is served that leaves its zone
	CrossRegion float64 `json:"cross_region"` // and its region
	// Fullest is the highest utilization of a locality whose capacity is
	// declared, Where it is and Of which service; Over is by how much the worst
	// is above its ceiling, as a factor; 0 where none is.
	Fullest float64         `json:"fullest"`
	Where   isobar.Locality `json:"where,omitzero"`
	Of      string          `json:"of,omitempty"`
	Over    float64         `json:"over,omitempty"`
}

// OutlookOf tells what the model says of a service of a plan, or of all for an
// empty name. Localities without declared capacity are left out of utilization:
// theirs is made from demand.
func OutlookOf(p *Plan, service string) Outlook {
	var out Outlook
	var cost, solved, served, zone, region float64
	for _, s := range p.named(service) {
		c, n := s.cost()
		cost, solved = cost+c, solved+n
		for i := range s.Result.Sources {
			r := &s.Result.Sources[i]
			out.Demand += r.Demand
			out.Shed += r.Demand * s.Result.Drop
			for l, share := range r.Shares {
				rate := r.Demand * (1 - s.Result.Drop) * share
				served += rate
				if to := s.Sites[l].Group.Locality; r.Source.IsZero() || to.ZoneOnly() == r.Source.ZoneOnly() {
					continue
				} else if zone += rate; to.Region != r.Source.Region {
					region += rate
				}
			}
		}
		out.fill(s)
	}
	if solved > 0 {
		out.Latency = cost / solved
	}
	if served > 0 {
		out.CrossZone, out.CrossRegion = zone/served, region/served
	}
	return out
}

// fill looks for the fullest locality.
func (o *Outlook) fill(s *Service) {
	for i := range s.Sites {
		site := &s.Sites[i]
		if i >= len(s.Spec.Localities) || site.Capacity <= 0 {
			continue
		}
		if _, declared := endpointRates(&s.Spec.Localities[i]); !declared {
			continue
		}
		u := s.utilization(site.Group.Locality)
		if u > o.Fullest {
			o.Fullest, o.Where, o.Of = u, site.Group.Locality, s.Spec.Name
		}
		if over := u / site.Ceiling; site.Ceiling > 0 && over > breachSlack {
			o.Over = max(o.Over, over)
		}
	}
}
