package admin

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// DeviatingSource is a client locality whose clients do not follow the weights of a service.
type DeviatingSource struct {
	plan.DeviationSeen

	Service  string          `json:"service"`
	Locality isobar.Locality `json:"locality"`
	Text     string          `json:"text"` // a sentence that names the clients that stand out
}

// ClientDeviates says that the requests of a client do not go where its weights say.
type ClientDeviates struct {
	Service string  `json:"service"`
	Points  float64 `json:"points"` // largest difference of a share, percent: at least this part of its requests goes elsewhere
}

// deviatingSources lists the localities whose clients do not follow their weights, by service.
func deviatingSources(p *plan.Plan) []DeviatingSource {
	var out []DeviatingSource
	for _, svc := range p.Services {
		for i := range svc.Findings.Deviating {
			d := &svc.Findings.Deviating[i]
			seen := plan.DeviationOf(d)
			out = append(out, DeviatingSource{DeviationSeen: *seen, Service: svc.Spec.Name, Locality: d.Source, Text: seen.String()})
		}
	}
	return out
}

// markDeviating notes at the clients that stand out what they do.
func markDeviating(clients []Client, sources []DeviatingSource) {
	type key struct{ locality, node, cluster string }
	found := map[key][]ClientDeviates{}
	for i := range sources {
		for _, c := range sources[i].Clients {
			k := key{sources[i].Locality.String(), c.Node, c.Cluster}
			found[k] = append(found[k], ClientDeviates{Service: sources[i].Service, Points: c.Points})
		}
	}
	for i := range clients {
		c := &clients[i]
		c.Deviates = found[key{c.Locality, c.ID, c.Cluster}]
	}
}
