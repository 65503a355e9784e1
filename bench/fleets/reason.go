package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/sim"
)

// belief is what plans went by for one locality, beside the truth, in the mean of the
// measured ticks.
type belief struct {
	name       string
	truth      float64 // requests/s
	capacity   float64 // requests/s that plans went by, a sum over the ticks
	ticks      float64
	used, best float64 // mean utilization, Isobar's and the clairvoyant's
}

// begin notes what each locality can really serve while it is measured.
func (j *outcome) begin(sc *sim.Scenario) {
	s := &sc.Topology.Services[0]
	for i := range s.Localities {
		l := &s.Localities[i]
		b := belief{name: l.Locality.String(), truth: l.MaxRate}
		for k := range sc.Capacities {
			if c := &sc.Capacities[k]; c.Locality == l.Locality {
				b.truth *= c.Factor(sc.Length)
			}
		}
		j.sites = append(j.sites, b)
	}
}

// believe notes what a plan goes by.
func (j *outcome) believe(p *plan.Plan) {
	for i := range p.Services[0].Sites {
		j.sites[i].capacity += p.Services[0].Sites[i].Capacity
		j.sites[i].ticks++
	}
}

// compare notes where requests went.
func (j *outcome) compare(is, best *sim.Result) {
	for i := range j.sites {
		j.sites[i].used, j.sites[i].best = is.Used[0][i], best.Used[0][i]
	}
}

// missed reports whether the fleet misses an aim.
func (j *outcome) missed() bool { return j.ratio() > near || j.failed > j.bestFailed+moreFailed }

// writeReason prints how a fleet that misses an aim differs from the clairvoyant's: what
// plans went by, and the utilization of each locality beside the clairvoyant's.
func (j *outcome) writeReason(out io.Writer) {
	var all []string
	for i := range j.sites {
		b := &j.sites[i]
		all = append(all, fmt.Sprintf("%s believed %.2f of its capacity, used %.0f%% (%.0f%%)",
			b.name, b.capacity/math.Max(1, b.ticks)/b.truth, 100*b.used, 100*b.best))
	}
	_, _ = fmt.Fprintf(out, "    %s\n", strings.Join(all, "; "))
}
