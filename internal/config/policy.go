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
	case s.Policy == isobar.PolicyFixed && s.Prefers():
		at.Warnf("remove preferred, or the weights of the other localities", "preferred localities have no effect in policy fixed")
	}
}

func isolationField(into *isobar.Isolation) strict.Field {
	return strict.Field{Name: "isolation", Read: func(v strict.Value) {
		s, ok := v.Enum(isobar.IsolationNames()...)
		if !ok {
			return
		}
		if i, err := isobar.ParseIsolation(s); err == nil {
			*into = i
		}
	}}
}

// residencyField reads where requests may go.
func residencyField(into *[]isobar.Residency) strict.Field {
	return strict.Field{Name: "residency", Read: func(v strict.Value) {
		items, _ := v.List()
		*into = nil
		for _, item := range items {
			var r isobar.Residency
			item.Object([]strict.Field{
				{Name: "from", Required: true, Read: func(v strict.Value) { r.From, _ = readGlob(v) }},
				{Name: "allow", Required: true, Read: func(v strict.Value) {
					globs, ok := v.List()
					if ok && len(globs) == 0 {
						v.Errorf("name the localities to which these clients may send", "is empty")
					}
					for _, g := range globs {
						if glob, ok := readGlob(g); ok {
							r.Allow = append(r.Allow, glob)
						}
					}
				}},
			})
			*into = append(*into, r)
		}
	}}
}

func readGlob(v strict.Value) (isobar.LocalityGlob, bool) {
	s, ok := v.Text()
	if !ok {
		return isobar.LocalityGlob{}, false
	}
	g, err := isobar.ParseLocalityGlob(s)
	if err != nil || !printable(s) {
		v.Errorf("write region, region/zone or region/zone/sub_zone; * stands for any characters of a part", "%q is not a pattern of localities", s)
		return isobar.LocalityGlob{}, false
	}
	return g, true
}
