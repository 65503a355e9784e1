//go:build !race

package sim

import (
	"fmt"
	"math"

	"github.com/isobar-xds/isobar"
)

// The bounds on what a tick may move, and what rounding may, as shares.
const (
	aUnit   = 1.0 / isobar.WeightScale
	aStep   = 0.10
	aRelief = 0.30
	aProbe  = 0.01
)

// assignments: what clients get has the form that they accept.
func (j *judgement) assignments() error {
	for i := range j.now.Result.Sources {
		r := &j.now.Result.Sources[i]
		if err := soundAssignment(j.now.Spec, r.Source, r.Assignment); err != nil {
			return fmt.Errorf("from %s: %w", r.Source, err)
		}
		if err := j.toldDrops(r.Assignment); err != nil {
			return fmt.Errorf("from %s: %w", r.Source, err)
		}
		for _, tier := range r.Assignment.Priorities {
			for _, lw := range tier {
				if err := j.told(i, lw.EndpointGroup); err != nil {
					return fmt.Errorf("from %s: %w", r.Source, err)
				}
			}
		}
	}
	return nil
}

// told: endpoints are all there, and no others, each with the health that is known, unless
// nothing that the source may use is healthy.
func (j *judgement) told(i int, g *isobar.EndpointGroup) error {
	for l := range j.now.Spec.Localities {
		sl := &j.now.Spec.Localities[l]
		if sl.Locality != g.Locality {
			continue
		}
		if len(g.Endpoints) != len(sl.Endpoints) {
			return fmt.Errorf("%s has %d endpoints, want %d", g.Locality, len(g.Endpoints), len(sl.Endpoints))
		}
		for k := range g.Endpoints {
			got, want := g.Endpoints[k], &sl.Endpoints[k]
			status := j.known.Status(j.now.Spec.Name, want)
			if got.Address != want.Address || (got.Health != status && j.usableFor(i) > 0) {
				return fmt.Errorf("%s is told to be %s, %s is known to be %s", got.Address, got.Health, want.Address, status)
			}
		}
		return nil
	}
	return fmt.Errorf("%s is no locality of the service", g.Locality)
}

// usableFor counts the healthy endpoints that a source may use.
func (j *judgement) usableFor(i int) int {
	n := 0
	for l, usable := range j.usable {
		if j.allows(i, l) {
			n += usable
		}
	}
	return n
}

// soundAssignment: at most four tiers, none empty, no weight of 0, weights that
// fit 32 bits, those of the first tier whole; no locality and no address twice,
// nothing that is not allowed, and a first tier that can serve if anything can.
func soundAssignment(spec *isobar.Service, from isobar.Locality, a *isobar.Assignment) error {
	allowed := 0
	for i := range spec.Localities {
		if spec.Allows(from, spec.Localities[i].Locality) {
			allowed += len(spec.Localities[i].Endpoints)
		}
	}
	if len(a.Priorities) > 4 {
		return fmt.Errorf("%d priorities", len(a.Priorities))
	}
	localities, addresses := map[isobar.Locality]bool{}, map[string]bool{}
	usable, first := 0, 0
	for p, tier := range a.Priorities {
		if len(tier) == 0 {
			return fmt.Errorf("priority %d is empty", p)
		}
		var sum uint64
		for _, lw := range tier {
			if !spec.Allows(from, lw.Locality) {
				return fmt.Errorf("%s is not allowed", lw.Locality)
			}
			if lw.Weight == 0 || localities[lw.Locality] {
				return fmt.Errorf("%s with weight %d, there before: %v", lw.Locality, lw.Weight, localities[lw.Locality])
			}
			localities[lw.Locality] = true
			sum += uint64(lw.Weight)
			usable += lw.Usable()
			if p == 0 {
				first += lw.Usable()
			}
			if err := soundEndpoints(lw.EndpointGroup, addresses); err != nil {
				return err
			}
		}
		if sum > math.MaxUint32 || (p == 0 && sum != isobar.WeightScale) {
			return fmt.Errorf("the weights of priority %d sum to %d", p, sum)
		}
	}
	if allowed > 0 && (len(a.Priorities) == 0 || (usable > 0 && first == 0)) {
		return fmt.Errorf("%d priorities, %d usable endpoints, %d in the first", len(a.Priorities), usable, first)
	}
	return nil
}

func soundEndpoints(g *isobar.EndpointGroup, seen map[string]bool) error {
	var sum uint64
	for _, e := range g.Endpoints {
		if e.Weight == 0 || seen[e.Address] {
			return fmt.Errorf("%s with weight %d, there before: %v", e.Address, e.Weight, seen[e.Address])
		}
		seen[e.Address] = true
		sum += uint64(e.Weight)
	}
	if sum > math.MaxUint32 {
		return fmt.Errorf("the endpoint weights of %s sum to %d", g.Locality, sum)
	}
	return nil
}

// numbers: what was decided can be computed with.
func (j *judgement) numbers() error {
	for i := range j.now.Result.Sources {
		for l, share := range j.now.Result.Sources[i].Shares {
			if !(share >= 0 && share <= 1+1e-6) {
				return fmt.Errorf("a share of %v from %s for %s", share, j.from(i), j.at(l))
			}
		}
	}
	for l, load := range j.now.Result.Load {
		if !(load >= 0 && load <= math.MaxFloat64) {
			return fmt.Errorf("a load of %v for %s", load, j.at(l))
		}
	}
	return nil
}

// takeover: each source has all localities that can take traffic, so that its clients can fail over without a new plan.
func (j *judgement) takeover() error {
	for i := range j.is {
		if j.is[i] == nil {
			continue
		}
		has := map[isobar.Locality]bool{}
		for _, tier := range j.now.Result.Sources[i].Assignment.Priorities {
			for _, lw := range tier {
				has[lw.Locality] = true
			}
		}
		for l, fit := range j.fit {
			if fit && j.allows(i, l) && !has[j.at(l)] {
				return fmt.Errorf("%s does not have %s, which can take traffic", j.from(i), j.at(l))
			}
		}
	}
	return nil
}

// unfit: nothing but probes goes to what can't take it while something else can.
func (j *judgement) unfit() error {
	for i := range j.is {
		for l, share := range j.is[i] {
			probe := j.usable[l] > 0 && j.now.Sites[l].Unreachable && share <= aProbe+aUnit
			if share > 0 && !j.fit[l] && !probe && j.fitFor(i) {
				return fmt.Errorf("%.2f points from %s to %s, where %d endpoints are usable", 100*share, j.from(i), j.at(l), j.usable[l])
			}
		}
	}
	return nil
}

// mustGo is the part of a published share that may leave a locality at once.
func (j *judgement) mustGo(i, l int) float64 {
	share := j.was[i][l]
	switch {
	case !j.fit[l] || !j.allows(i, l):
		return share
	case j.barred(i, l):
		return math.Max(0, share-aProbe)
	}
	return 0
}

// binds tells whether the service has ceilings that its plan has to keep.
func (j *judgement) binds() bool {
	return j.now.Spec.Mode == isobar.ModeFull && !j.now.Spec.Policy.IgnoresLoad() && j.anyFit
}

// limit is what a locality may get at most in the long run, requests/s.
func (j *judgement) limit(l int) float64 {
	s := &j.now.Sites[l]
	return math.Max(0, j.now.Spec.Localities[l].Ceiling*math.Max(1, s.Scale)*s.Capacity-s.Unmanaged)
}

// loads is what the shares before, and those of now, send to each locality at
// the demand of now. Sources without a past count with what they get. displaced
// is what had to find a new place, rounding what whole units may add.
func (j *judgement) loads() (before, now []float64, displaced, rounding float64) {
	before, now = make([]float64, len(j.fit)), make([]float64, len(j.fit))
	for i := range j.is {
		rounding += j.rate[i] * aUnit
		for l, share := range j.is[i] {
			now[l] += j.rate[i] * share
			if j.was[i] == nil {
				before[l] += j.rate[i] * share
			}
		}
		for l, share := range j.was[i] {
			before[l] += j.rate[i] * share
			displaced += j.rate[i] * j.mustGo(i, l)
		}
	}
	return before, now, displaced, rounding
}

// untold is the load of wanted shares of less than a unit, which the wire can't
// tell, and which goes where they send most.
func (j *judgement) untold() float64 {
	sum := 0.0
	for i, is := range j.is {
		for l, want := range j.now.Result.Sources[i].Want {
			if l < len(is) && is[l] == 0 && want < aUnit { // a source that gets nothing has no shares
				sum += j.rate[i] * want
			}
		}
	}
	return sum
}

// ceilings: no locality is lifted above its limit, and no excess grows, but for
// what had to go somewhere, and what is too little for the wire to say where.
func (j *judgement) ceilings() error {
	if !j.binds() {
		return nil
	}
	before, now, displaced, rounding := j.loads()
	rounding += j.untold()
	for l := range now {
		most := math.Max(j.limit(l), before[l]) + displaced + rounding
		if j.fit[l] && now[l] > most*(1+1e-5) {
			return fmt.Errorf("%s goes from %.2f to %.2f requests/s, its limit is %.2f, %.2f were displaced", j.at(l), before[l], now[l], j.limit(l), displaced)
		}
	}
	return nil
}

// comesBack is the share that a source may move at once, because localities that
// failed work again: up to a quarter of what is wanted there, or as much again as
// it sends there.
func (j *judgement) comesBack(i int) float64 {
	sum := 0.0
	if j.now.Spec.Mode != isobar.ModeFull {
		return sum
	}
	for _, o := range j.now.Deviations.Opening {
		for l := range j.was[i] {
			if r := j.now.Result.Sources[i]; o.Source == r.Source && o.Locality == j.at(l) {
				sum += math.Max(0, math.Min(r.Want[l]-j.was[i][l], math.Max(0.25, 2*j.was[i][l])))
			}
		}
	}
	return sum
}

// steps: a source moves at most so much in a tick, and nothing without a decision.
func (j *judgement) steps() error {
	if !j.anyFit {
		return nil
	}
	before, _, _, rounding := j.loads()
	for i := range j.is {
		if j.was[i] == nil || j.is[i] == nil {
			continue
		}
		other, relief := 0.0, 0.0
		for l, share := range j.was[i] {
			gone := share - j.mustGo(i, l) - j.is[i][l]
			switch {
			case gone <= 0 || j.shrunk[l]:
			case j.binds() && before[l]+rounding > j.limit(l):
				relief += gone
			default:
				other += gone
			}
		}
		slack := aUnit * float64(len(j.fit)+1)
		most, all := aStep, aRelief
		if back := j.comesBack(i); back > 0 {
			most, all = math.Max(most, back), math.Max(all, back)
		}
		if !j.deciding {
			most = 0
		}
		if other > most+slack || (other+relief > all+slack && j.deciding) || (!j.deciding && relief > slack) {
			return fmt.Errorf("%s moves %.2f points, and %.2f more off what is too full (a decision: %v)", j.from(i), 100*other, 100*relief, j.deciding)
		}
	}
	return nil
}

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
