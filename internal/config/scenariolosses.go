package config

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

// ScenarioLoss keeps messages from arriving for a while.
type ScenarioLoss struct {
	What     string          // reports, pushes, health or topology
	Locality isobar.Locality // whose reports or pushes: a locality, or a region or zone with all in it; zero = all
	From, To time.Duration
}

// lostByClient are the losses that some clients may have and others not.
var lostByClient = []string{"reports", "pushes"}

func (r *scenarioReader) losses(v strict.Value) {
	items, _ := v.List()
	if len(items) > maxScenarioLosses {
		v.Errorf("keep those that matter", "%d losses are more than %d", len(items), maxScenarioLosses)
		return
	}
	for _, item := range items {
		x := ScenarioLoss{To: r.scenario.Length}
		item.Object([]strict.Field{
			{Name: "what", Required: true, Read: func(v strict.Value) { x.What, _ = v.Enum("reports", "pushes", "health", "topology") }},
			{Name: "locality", Read: func(v strict.Value) {
				l, ok := readLocality(v)
				switch {
				case !ok || x.What == "": // told already
				case !slices.Contains(lostByClient, x.What):
					v.Errorf("remove it, or lose reports or pushes", "%s is lost as a whole, not of one locality", x.What)
				default:
					x.Locality = l
					r.somebody(v, l)
				}
			}},
			requiredSpan("from", &x.From, 0),
			spanField("to", &x.To, 0, maxScenarioLength),
		})
		if x.To < x.From {
			item.Errorf("let it end after it begins", "it ends at %v and begins at %v", x.To, x.From)
		}
		r.scenario.Losses = append(r.scenario.Losses, x)
	}
}

// maxScenarioLosses bounds how many losses each step has to look at.
const maxScenarioLosses = 1_000

// somebody warns of a place without clients: neither demand comes from there, nor
// does a service run there that calls another.
func (r *scenarioReader) somebody(v strict.Value, scope isobar.Locality) {
	for i := range r.scenario.Demand {
		if lies(r.scenario.Demand[i].From, scope) {
			return
		}
	}
	for i := range r.scenario.Services {
		s := &r.scenario.Services[i]
		for j := range s.Localities {
			if len(s.Calls) > 0 && lies(s.Localities[j].Locality, scope) {
				return
			}
		}
	}
	v.Warnf("check the name", "nobody sends from %s", scope)
}

// lies tells whether l is scope, or lies in it.
func lies(l, scope isobar.Locality) bool {
	return l.Region == scope.Region && (scope.Zone == "" || l.Zone == scope.Zone) && (scope.SubZone == "" || l.SubZone == scope.SubZone)
}
