package assign_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
)

// fleet is a service of 10 sites with 10 endpoints each and 10 sources.
func fleet(k int, tick int) assign.Input {
	var sites []assign.Site
	var sources []assign.Source
	for i := range 10 {
		at := isobar.Locality{Region: fmt.Sprintf("r%d", i/4), Zone: fmt.Sprintf("z%d", i)}
		health := make([]isobar.HealthStatus, 10)
		sites = append(sites, site(at, 1000, health...))
		s := source(at, 300+30*math.Sin(float64(k+7*i+tick)), nil)
		for j := range 10 {
			s.Distance = append(s.Distance, math.Abs(float64(i-j))*10)
			s.Target = append(s.Target, math.Exp(-math.Abs(float64(i-j))/(1+0.5*math.Sin(float64(k+tick)/5))))
		}
		normalise(s.Target)
		sources = append(sources, s)
	}
	in := input(sites, sources...)
	in.Service.Name = fmt.Sprintf("svc-%d", k)
	return in
}

// BenchmarkTick is one tick of 1,000 services of 10 sites and 10 sources whose
// targets all move.
func BenchmarkTick(b *testing.B) {
	const services, ticks = 1000, 3
	var ins [ticks][]assign.Input
	for tick := range ins {
		for k := range services {
			in := fleet(k, tick)
			for l := range in.Sites {
				if tick > 0 {
					in.Sites[l].Group = ins[0][k].Sites[l].Group
				}
			}
			ins[tick] = append(ins[tick], in)
		}
	}
	prev := make([]*assign.Result, services)
	for k := range prev {
		prev[k] = assign.Assign(ins[0][k])
	}
	b.Run("assign", func(b *testing.B) {
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			for k := range prev {
				in := ins[n%ticks][k]
				in.Previous = prev[k]
				prev[k] = assign.Assign(in)
			}
		}
	})
	b.Run("check", func(b *testing.B) {
		b.ReportAllocs()
		next := make([]*assign.Result, services)
		cis := make([]invariant.CheckInput, services)
		for k := range prev {
			in := ins[1][k]
			in.Previous = prev[k]
			next[k], cis[k] = assign.Assign(in), checkInput(in)
		}
		for b.Loop() {
			for k := range prev {
				if v := invariant.Check(prev[k], next[k], cis[k]); len(v) > 0 {
					b.Fatal(v[0].Text)
				}
			}
		}
	})
}
