package config

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

// placedWeights are where the localities of a service have weights.
type placedWeights []strict.Value

func (p *placedWeights) field(into *float64) strict.Field {
	return strict.Field{Name: "weight", Read: func(v strict.Value) {
		*p = append(*p, v)
		floatField("", into, shareRange).Read(v)
	}}
}

// check wants weights of localities with policy fixed, and only then. at is
// where the policy is given.
func (p *placedWeights) check(s *isobar.Service, at strict.Value) {
	switch {
	case s.Policy == isobar.PolicyFixed && len(*p) == 0:
		at.Errorf("give localities a weight each, or use another policy", "policy fixed splits by the weights of localities, and none is given")
	case s.Policy != isobar.PolicyFixed && len(*p) > 0:
		(*p)[0].Errorf("write policy: fixed, move it to the endpoints, or remove it: what a locality gets follows from its max_rate and the demand otherwise",
			"weight of a locality has no place in policy %s", s.Policy)
	}
}
