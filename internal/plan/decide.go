package plan

import (
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
)

// decideGroup decides services that calls connect, callers first, or one alone.
// Each is solved together with all that its calls lead to. What its callers send
// is known by then: not what they would send in the optimum, but what the shares
// that are published for them make of it. So callees follow the pace of their
// callers. The certificate is that of the first problem, which is all of them.
func decideGroup(in *Input, group []*draft) *certificate {
	var sum *certificate
	joint := len(group) > 1
	for _, d := range group {
		for _, l := range d.in {
			d.Callers = append(d.Callers, l.from.Spec.Name)
		}
		d.dropCallers()
	}
	for at, d := range group {
		d.Joint = d.Joint || joint
		d.finishDemand()
		var better [][]float64
		switch {
		case in.Trigger == assign.Reapply: // the last solution stands, and current weights go on until the next tick
		case at == 0 && joint:
			sum = solveJointly(group)
		case len(d.out) > 0:
			solveJointly(group[at:])
		default:
			d.solve()
			if !d.linked() {
				d.Steady, better = refineSteady(&d.Service, d.last, d.sameWays)
			}
		}
		d.decide(in, better)
		for _, l := range d.out {
			l.to.receive(l)
		}
	}
	if sum != nil {
		sum.publish(group)
	}
	return sum
}

// decide assigns the service, and works out what follows from that. better are the
// shares that calm demand wants, nil = nothing to be gained.
func (d *draft) decide(in *Input, better [][]float64) {
	solved, previous := d.Solution != nil, d.published()
	input := d.assignInput(in.Trigger, better != nil)
	targets, err := targetsOf(&d.Service, &d.routes, d.sources, better)
	if err != nil {
		d.Hold = "the policy refused the problem: " + err.Error()
	}
	for i := range d.sources {
		input.Sources[i] = sourceOf(&d.Service, &d.routes, &d.sources[i], &targets, previous)
	}
	var violations []invariant.Violation
	d.Result, violations = decide(input, in.Now)
	d.violations = append(d.violations, violations...)
	if d.Steady != nil && previous != nil && better == nil && moved(d.Result, previous) { // for another reason
		d.Steady = nil
	}
	if in.Trigger == assign.Reapply && !solved && d.sameWays {
		keepSolution(&d.Service, d.last)
	}
	d.cost = certify(&d.Service)
	if solved && targets.policy != nil && d.cost > 0 && !d.Joint {
		d.PolicyGap, d.PolicyMS = policyCost(&d.Service, &targets)
	}
	if in.News {
		d.Damping = watchCycles(&d.Service, d.last)
	}
}

// assignInput is what package assign gets of the draft, but for its sources.
func (d *draft) assignInput(trigger assign.Trigger, settle bool) assign.Input {
	in := assign.Input{
		Service: d.served(), Sites: d.Sites, Sources: make([]assign.Source, len(d.sources)),
		Prices: d.Prices, Previous: d.published(), Trigger: trigger, Hold: d.Hold, Settle: settle,
	}
	switch {
	case d.Solution != nil:
		in.Shed = d.shed(shedFraction(d.Problem.Demand, d.Solution.Shed))
	case in.Previous != nil && (trigger == assign.Reapply || d.sources.total() > 0): // there is nothing to serve with
		in.Shed = in.Previous.Drop
	}
	in.Pace, in.Slow = slowdown(&d.Service)
	if d.Damping != nil && d.Damping.Level > 0 {
		in.Gain, in.Damp = d.Damping.Gain(), d.Damping.why()
	}
	return in
}

// shed is the fraction that clients are told to drop, where the solver sheds another
// one: demand that is not proven raises no drop. It does not end one either, for most
// clients without a history have taken the place of others.
func (d *draft) shed(wanted float64) float64 {
	demand := d.sources.total()
	unproven := d.unproven(0) * demand
	if wanted <= 0 || unproven <= 0 {
		return wanted
	}
	proven := 0.0
	if unproven < demand {
		proven = min(wanted, max(0, wanted*demand-unproven)/(demand-unproven))
	}
	if previous := d.published(); previous != nil {
		proven = max(proven, min(wanted, previous.Drop))
	}
	return proven
}

// sourceOf is what package assign gets of a source.
func sourceOf(of *Service, r *routes, s *sourceDemand, t *targets, previous *assign.Result) assign.Source {
	out := assign.Source{
		Locality: s.source, Demand: s.demand, Distance: r.costs(s.source, of.Mode()), Target: t.of(s.source),
		Barred: s.barred, Mix: mixOf(of, s.source, previous),
	}
	out.Forbidden, out.Reserve = r.confined(s)
	boundShares(&out, of, r.sites, previous)
	out.Chosen = chosenBy(of, r.sites, s.source)
	return out
}

// openFirst is the part of its target that a share which comes back may always
// have; beyond it, it at most doubles.
const openFirst = 0.25

// boundShares returns how much a source may get of localities in which requests
// fail more than before, or did until a moment ago.
func boundShares(s *assign.Source, of *Service, sites sites, previous *assign.Result) {
	if of.Mode() == isobar.ModeObserve || (len(of.Deviations.Rising) == 0 && len(of.Deviations.Opening) == 0) {
		return
	}
	most := func(l int, share float64) {
		if s.Most == nil {
			s.Most = make([]float64, len(sites))
			for k := range s.Most {
				s.Most[k] = 1
			}
		}
		s.Most[l] = min(s.Most[l], share)
	}
	before := previous.Source(s.Locality)
	if before == nil {
		return
	}
	at := sites.in(previous.Sites)
	for _, where := range of.Deviations.Rising {
		if l := sites.index(where); l >= 0 && at[l] >= 0 {
			most(l, before.Shares[at[l]])
		}
	}
	for _, o := range of.Deviations.Opening {
		l := sites.index(o.Locality)
		if o.Source != s.Locality || l < 0 || len(s.Target) != len(sites) {
			continue
		}
		if s.Back == nil {
			s.Back = make([]bool, len(sites))
		}
		s.Back[l] = true
		now := 0.0
		if at[l] >= 0 {
			now = before.Shares[at[l]]
		}
		most(l, min(o.Open*s.Target[l], max(openFirst*s.Target[l], 2*now)))
	}
}

// decide assigns a service and vets the result. What the check refuses is not
// published if there is something better: what was published, carried over to
// current health. That may break rules too, for example where demand or
// capacity changed, so it is vetted as well and has to do less harm.
func decide(in assign.Input, now time.Time) (*assign.Result, []invariant.Violation) {
	return vet(in, assign.Assign(in), now)
}

func vet(in assign.Input, result *assign.Result, now time.Time) (*assign.Result, []invariant.Violation) {
	refused := check(in, result, now)
	if len(refused) == 0 || in.Previous == nil {
		return result, refused
	}
	in.Trigger = assign.Reapply
	in.Refused = refused[0].Rule + ": " + refused[0].Text
	fallback := assign.Assign(in)
	left := check(in, fallback, now)
	if !invariant.Milder(left, refused) {
		return result, refused
	}
	for i := range left {
		left[i].Text = "also in the previous assignment: " + left[i].Text
	}
	return fallback, append(refused, left...)
}

// check vets a result by rules that share nothing with what made it.
func check(in assign.Input, result *assign.Result, now time.Time) []invariant.Violation {
	violations := invariant.Check(in.Previous, result, invariant.CheckInput{
		Service: in.Service, Sources: in.Sources, Trigger: in.Trigger, Hold: in.Hold, Pace: in.Pace,
	})
	for i := range violations {
		violations[i].At = now
	}
	return violations
}
