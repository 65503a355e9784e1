package assign

import (
	"fmt"
	"math"
)

// Probes keep a little traffic on sites that seem to be out of reach: without
// any nobody would see when they can be reached again.
const (
	probeShare = 1 * point  // of a source's traffic, to one site
	mostProbes = 10 * point // of a source's traffic, to all of them
)

// setProbes finds the sites to which a row sends no more than a probe: those it
// is barred from, and those that nobody can reach, if it is barred from them or
// had a share there. Where nothing is fit there is nothing to lose and no need
// for probes.
func (w *work) setProbes(r *row) {
	n := 0
	for l := range w.sites {
		if !w.sendsProbe(r, l) {
			continue
		}
		if r.probes == nil {
			r.probes = make([]bool, len(w.sites))
		}
		r.probes[l] = true
		n++
	}
	if n > 0 {
		r.probe = min(probeShare, mostProbes/float64(n))
	}
}

func (w *work) sendsProbe(r *row, l int) bool {
	if r.scope.use[l] {
		return r.isBarred(l)
	}
	s := &w.sites[l]
	if r.isForbidden(l) || !r.scope.regular || !s.Unreachable || !s.Usable() {
		return false
	}
	return r.old[l] > 0 || (len(r.src.Barred) == len(w.sites) && r.src.Barred[l])
}

func (r *row) isProbe(l int) bool { return r.probes != nil && r.probes[l] }

// addProbes takes what the probes need from the rest.
func (w *work) addProbes(r *row) {
	rest := 1.0
	for l := range r.want {
		if r.isProbe(l) {
			rest -= r.probe
			r.want[l] = 0
		}
	}
	if rest >= 1 {
		return
	}
	for l := range r.want {
		if !r.isProbe(l) {
			r.want[l] *= rest
			continue
		}
		r.want[l] = r.probe
		why := "requests from here do not arrive there"
		if w.sites[l].Unreachable {
			why = "observed unreachable"
		}
		r.note(ReasonBarred, w.sites[l].Group.Locality, fmt.Sprintf("%s: a probe of %g%%", why, math.Round(1e4*r.probe)/100))
	}
}

// probeLoads is what the probes send to each site: it has to carry them, even
// if that is more than its limit, for nobody knows whether they arrive.
func (w *work) probeLoads() []float64 {
	load := make([]float64, len(w.sites))
	for i := range w.rows {
		r := &w.rows[i]
		for l := range load {
			if r.isProbe(l) {
				load[l] += r.rate * r.probe
			}
		}
	}
	return load
}
