//go:build !race

package sim

import (
	"fmt"

	"github.com/isobar-xds/isobar"
)

// aPercent is what the steps of the wire may add to what a class drops.
const aPercent = 0.01

// dropOf is what clients of a source drop of all their requests.
func (j *judgement) dropOf(i int) float64 {
	r := &j.now.Result.Sources[i]
	classes, all, sum := j.now.Result.Classes, 0.0, 0.0
	if classes == nil {
		return j.now.Result.Drop
	}
	for c, part := range r.Mix {
		all += part
		sum += part * classes.Drops[c]
	}
	if all <= 0 {
		return classes.Drops[isobar.ClassCritical]
	}
	return sum / all
}

// drops: within what the operator allows, of all requests and of those of each
// class, of none more than of one that matters less, and unchanged without a
// decision.
func (j *judgement) drops() error {
	drop, most, classes := j.now.Result.Drop, j.now.Spec.MaxShed, j.now.Result.Classes
	if classes != nil {
		most += aPercent
		last := 0.0
		for c, d := range classes.Drops {
			if !(d >= last && d <= j.now.Spec.Criticality.MaxShed[c]+1e-9) {
				return fmt.Errorf("%s drops %v, the class above it %v", isobar.Class(c), d, last)
			}
			last = d
		}
	}
	if (classes == nil) != (j.now.Spec.Criticality == nil) || !(drop >= 0 && drop <= most+1e-9) {
		return fmt.Errorf("drops %v of at most %v, by class: %v", drop, most, classes != nil)
	}
	if j.before == nil || j.deciding {
		return nil
	}
	before := j.before.Result
	switch {
	case before.Classes == nil && drop == before.Drop, before.Classes != nil && classes.Drops == before.Classes.Drops:
		return nil
	case before.Classes != nil && j.wouldDrop(&before.Classes.Drops) > most:
		return nil // more clients of low class have come than the operator's limit for all allows
	}
	return fmt.Errorf("drops %v after %v without a decision", drop, before.Drop)
}

// wouldDrop is what the clients of now would drop of all requests, with other drops.
func (j *judgement) wouldDrop(drops *isobar.ClassFractions) float64 {
	sum, all := 0.0, 0.0
	for i := range j.now.Result.Sources {
		r := &j.now.Result.Sources[i]
		for c, part := range r.Mix {
			sum += r.Demand * part * drops[c]
			all += r.Demand * part
		}
	}
	return sum / max(all, 1e-9)
}

// toldDrops: every source is told what the service decided.
func (j *judgement) toldDrops(a *isobar.Assignment) error {
	want, classes := j.now.Result.Drop, j.now.Result.Classes
	if classes != nil {
		want = classes.Drops[isobar.ClassCritical]
	}
	if a.Drop != want || !a.Classes.Equal(classes) {
		return fmt.Errorf("a drop of %v, the service says %v", a.Drop, want)
	}
	return nil
}
