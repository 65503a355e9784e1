package config

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

// pair is an ordered pair of scopes.
type pair struct{ from, to isobar.Locality }

// placedRegion is a region that a rule names, and where.
type placedRegion struct {
	region string
	at     strict.Value
}

// checkRegions warns, once each, of regions where no service runs: most are
// misspelt. Without any service nothing can be said.
func checkRegions(named []placedRegion, services []isobar.Service) {
	if len(services) == 0 {
		return
	}
	known := map[string]bool{}
	for i := range services {
		for j := range services[i].Localities {
			known[services[i].Localities[j].Locality.Region] = true
		}
	}
	for _, n := range named {
		if !known[n.region] {
			known[n.region] = true
			n.at.Warnf("check the name, unless only clients, or services of the API, are there",
				"no service of this file runs in region %s", n.region)
		}
	}
}

// readNetwork reads the latencies between scopes; nil where something is wrong.
// The regions that it names are added to named.
func readNetwork(v strict.Value, named *[]placedRegion) *isobar.Network {
	var rules []isobar.LatencyRule
	var egress []isobar.EgressRule
	v.Object([]strict.Field{
		{Name: "latency_ms", Read: func(v strict.Value) {
			lines := map[pair]int{}
			items, _ := v.List()
			for _, item := range items {
				if r, ok := readRule(item, lines); ok {
					rules = append(rules, r)
					*named = append(*named, placedRegion{r.From.Region, item}, placedRegion{r.To.Region, item})
				}
			}
		}},
		{Name: "egress", Read: func(v strict.Value) {
			lines := map[pair]int{}
			items, _ := v.List()
			for _, item := range items {
				var p pair
				var price float64
				if readPair(item, &p, "price", &price, priceRange, lines) {
					egress = append(egress, isobar.EgressRule{From: p.from, To: p.to, Price: price})
					*named = append(*named, placedRegion{p.from.Region, item}, placedRegion{p.to.Region, item})
				}
			}
		}},
	})
	n, err := isobar.NewNetwork(rules)
	if err == nil {
		n, err = n.WithEgress(egress)
	}
	if err != nil {
		v.Errorf("", "%v", err)
	}
	return n
}

func readRule(v strict.Value, lines map[pair]int) (isobar.LatencyRule, bool) {
	var p pair
	var ms float64
	ok := readPair(v, &p, "ms", &ms, latencyRange, lines)
	return isobar.LatencyRule{From: p.from, To: p.to, MS: ms}, ok
}

// readPair reads {from, to, VALUE} and refuses a pair that was given before.
func readPair(v strict.Value, p *pair, name string, value *float64, r strict.Range, lines map[pair]int) bool {
	given := false
	v.Object([]strict.Field{
		localityField("from", func(_ strict.Value, l isobar.Locality) { p.from = l }),
		localityField("to", func(_ strict.Value, l isobar.Locality) { p.to = l }),
		{Name: name, Required: true, Read: func(v strict.Value) { *value, given = v.Float(r) }},
	})
	if !given || p.from.IsZero() || p.to.IsZero() {
		return false
	}
	if line, twice := lines[*p]; twice {
		v.Errorf("keep one of them", "%s to %s is given twice, first in line %d", p.from, p.to, line)
		return false
	}
	lines[*p] = v.Pos().Line
	return true
}
