package admin

import (
	"fmt"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/plural"
)

// aboutf adds something about a service, which the text need not name.
func (b *statusBuilder) aboutf(svc *plan.Service, code Code, l isobar.Locality, format string, args ...any) {
	name := svc.Spec.Name
	b.attend(NewAttention(code, "%s: %s", name, fmt.Sprintf(format, args...)).Of(name).At(l).See("isobar explain %s", name))
}

// raisedSlack is the factor up to which a raised ceiling is a rounding error.
const raisedSlack = 1.001

// service looks at one service and returns its demand.
func (b *statusBuilder) service(p *plan.Plan, svc *plan.Service) (demand float64) {
	if svc.Result == nil {
		return 0
	}
	for i := range svc.Result.Sources {
		demand += svc.Result.Sources[i].Demand
	}
	if svc.Hold != "" && svc.Paused == nil {
		if len(b.Holds) < maxHolds {
			b.Holds = append(b.Holds, Held{Service: svc.Spec.Name, Reason: svc.Hold})
		}
		b.aboutf(svc, WeightsHeld, isobar.Locality{}, "weights are held: %s", svc.Hold)
	}
	b.degraded(svc)
	b.lifetimes(svc)
	b.fit(svc)
	for i := range svc.Sites {
		b.site(svc, i)
	}
	for _, t := range slices.Concat(svc.Outages(), svc.Failures(), plan.Contradictions(svc), plan.LimitWarnings(svc, p.Made)) {
		b.aboutf(svc, Code(t.Kind), t.Locality, "%s", t.Text)
	}
	for _, d := range plan.DeviationsOf(&svc.Deviations) {
		name := svc.Spec.Name
		item := NewAttention(ClientsDeviate, "%s from %s: %s", name, placeOf(d.Source), d.String()).
			Of(name).At(d.Source).See("isobar explain %s --from %s", name, d.Source)
		if len(d.Clients) == 1 && d.Others == 0 {
			item = item.By(d.Clients[0].Node)
		}
		b.attend(item)
	}
	return demand
}

// longestAbsence is a restart of Isobar and the longest pause that Envoy makes before
// it connects again, which is 20 s.
const longestAbsence = 30 * time.Second

// longestAbsenceOfGroup is how long a group of replicas may take that has lost all its disks
// and waits for clients to report.
const longestAbsenceOfGroup = 2 * time.Minute

// lifetimes reports assignments that end while Isobar restarts.
func (b *statusBuilder) lifetimes(svc *plan.Service) {
	absence, while := longestAbsence, "a restart of Isobar plus Envoy's pause before it reconnects (up to 20 s)"
	if b.grouped {
		absence, while = longestAbsenceOfGroup, "a restart of a group that has lost its disks, which waits for load reports"
	}
	for _, x := range []struct {
		field string
		set   time.Duration
	}{{"endpoint_stale_after", svc.Spec.Assignment.EndpointStaleAfter}, {"resource_ttl", svc.Spec.Assignment.ResourceTTL}} {
		if x.set > 0 && x.set < absence {
			b.aboutf(svc, ShortLifetime, isobar.Locality{}, "%s %s is shorter than %s: clients would lose working endpoints; set %s or more",
				x.field, x.set, while, absence)
		}
	}
}

// fit tells where demand does not fit into the capacity.
func (b *statusBuilder) fit(svc *plan.Service) {
	if svc.Result.Drop > 0 {
		b.aboutf(svc, Dropping, isobar.Locality{}, "clients drop %.1f%% of their requests", 100*svc.Result.Drop)
	}
	switch {
	case svc.Solution == nil:
	case svc.Solution.CeilingScale > raisedSlack:
		text := "demand exceeds the ceilings"
		if unused, all := svc.Unused(); unused > 0 { // demand may be what it always was
			text = fmt.Sprintf("%d of %d endpoints %s not used (health), and demand exceeds the ceilings of the others", unused, all, plural.Of(unused, "is", "are"))
		}
		b.aboutf(svc, DemandDoesNotFit, isobar.Locality{}, "%s: Isobar raises them by %.1f%%", text, 100*(svc.Solution.CeilingScale-1))
	default:
		others := ", and no other locality has headroom"
		if svc.HasHeadroom() {
			others = ", although other localities have headroom"
		}
		for _, o := range svc.Overloads() {
			b.aboutf(svc, LocalityOverloaded, o.Locality, "the planned load of %s is %.0f%% of its declared capacity%s; isobar explain %s shows the reason",
				o.Locality, 100*o.Used, others, svc.Spec.Name)
		}
	}
}

// site reports the health of a locality.
func (b *statusBuilder) site(svc *plan.Service, i int) {
	site := &svc.Sites[i]
	all, usable, l := len(site.Group.Endpoints), site.Group.Usable(), site.Group.Locality
	switch {
	case all > 0 && usable == 0 && b.takenOut(svc, site.Group):
	case site.Drained:
		b.aboutf(svc, LocalityDrained, l, "%s is drained: %d of %d endpoints are healthy", l, usable, all)
	case all > 0 && usable == 0:
		b.aboutf(svc, LocalityUnhealthy, l, "no endpoint in %s is healthy", l)
	default:
		b.partly(svc, site.Group)
	}
}

// takenOut reports a locality whose endpoints are all out of traffic because operators
// said so; false: some are for another reason.
func (b *statusBuilder) takenOut(svc *plan.Service, g *isobar.EndpointGroup) bool {
	name, said := svc.Spec.Name, map[string]isobar.HealthOverride{}
	for _, o := range b.overrides[name] {
		said[o.Address] = o
	}
	drained, last := true, isobar.HealthOverride{}
	for i := range g.Endpoints {
		o, ok := said[g.Endpoints[i].Address]
		if !ok || o.Status.Usable() {
			return false
		}
		drained = drained && o.Status == isobar.Draining
		if i == 0 || o.Since.After(last.Since) {
			last = o
		}
	}
	what, all := fmt.Sprintf("operators took all endpoints in %s out of traffic", g.Locality), ""
	if drained {
		what, all = fmt.Sprintf("%s is drained by an operator", g.Locality), ", POST /v1/undrain for all"
	}
	text := fmt.Sprintf("%s: %s%s: `isobar health set %s ADDRESS clear` ends this for an endpoint%s", name, what, orderedBy(&last), name, all)
	b.attend(NewAttention(LocalityDrained, "%s", text).Of(name).At(g.Locality).As(Notice).See("isobar health %s", name))
	return true
}

// orderedBy tells when, by whom and why a health was set, as far as that is known.
func orderedBy(o *isobar.HealthOverride) string {
	text := ""
	if !o.Since.IsZero() {
		text = " since " + o.Since.UTC().Format(time.RFC3339)
	}
	switch {
	case o.Who != "" && o.Reason != "":
		text += fmt.Sprintf(" (%s: %s)", o.Who, o.Reason)
	case o.Who+o.Reason != "":
		text += fmt.Sprintf(" (%s%s)", o.Who, o.Reason)
	}
	return text
}

// manyUnhealthy is the part of a locality's endpoints from which on those that are
// unhealthy are more than health checks are there to deal with.
const manyUnhealthy = 0.2

// partly reports a locality of which some endpoints are unhealthy. Those that drain
// do what they were told to.
func (b *statusBuilder) partly(svc *plan.Service, g *isobar.EndpointGroup) {
	var down []string
	for i := range g.Endpoints {
		if e := &g.Endpoints[i]; !e.Health.Usable() && e.Health != isobar.Draining {
			down = append(down, e.Address)
		}
	}
	if len(down) == 0 {
		return
	}
	severity := Notice
	if float64(len(down)) >= manyUnhealthy*float64(len(g.Endpoints)) {
		severity = Warning
	}
	name, more := svc.Spec.Name, "isobar health %s"
	if len(svc.Spec.HealthChecks) == 0 { // there are no votes to show
		more = "isobar explain %s"
	}
	unhealthy := fmt.Sprintf("%d of %s", len(down), plural.Count(len(g.Endpoints), "endpoint", "endpoints"))
	b.attend(NewAttention(EndpointsUnhealthy, "%s: %s in %s %s unhealthy: %s", name, unhealthy, g.Locality, plural.Of(len(down), "is", "are"), someOf(down)).
		Of(name).At(g.Locality).As(severity).See(more, name))
}

// Degraded is a service for which an input is missing.
type Degraded struct {
	plan.InputState

	Service string `json:"service"`
	Reason  string `json:"reason"`
	Binds   bool   `json:"binds"` // false: its mode or policy does not depend on the missing input
}

// degraded reports the input of a service that is most degraded.
func (b *statusBuilder) degraded(svc *plan.Service) {
	worst, ok := svc.Degraded()
	if !ok {
		return
	}
	if len(b.Degraded) < maxHolds {
		b.Degraded = append(b.Degraded, Degraded{InputState: worst, Service: svc.Spec.Name, Reason: worst.String(), Binds: svc.Bound()})
	}
	if svc.Bound() && worst.Level != plan.LevelHeld { // a hold has an attention item of its own
		b.aboutf(svc, InputMissing, isobar.Locality{}, "%s: %s", worst, worst.Level.Effect())
	}
}

// ReserveSummary shows which services would not survive the loss of a zone.
type ReserveSummary struct {
	AgeSeconds float64        `json:"age_seconds"` // of the plan for which the losses were simulated
	Services   int            `json:"services"`    // services with a result
	Failing    int            `json:"failing"`     // those of them that would not survive the loss
	AtLimit    int            `json:"at_limit"`    // those of the others that are slightly above a ceiling now, but were not in the last check that they passed
	Worst      []plan.Reserve `json:"worst"`       // those that fail, at most maxHolds, sorted by name
}

// reserves adds the check for losses; nothing before its first round.
func (b *statusBuilder) reserves(at time.Time, services []plan.Reserve) {
	if at.IsZero() {
		return
	}
	out := &ReserveSummary{AgeSeconds: seconds(time.Since(at)), Services: len(services), Worst: []plan.Reserve{}}
	for i := range services {
		if services[i].AtLimit {
			out.AtLimit++
		}
		if services[i].Stands() {
			continue
		}
		if out.Failing++; len(out.Worst) < maxHolds {
			out.Worst = append(out.Worst, services[i])
		}
	}
	b.N1 = out
}

// ScoreSummary shows how well predictions for the services agree with later observations.
type ScoreSummary struct {
	Services int     `json:"services"` // services with a score
	Lowest   float64 `json:"lowest"`   // 0 to 1
	Service  string  `json:"service"`  // with the lowest
}

// AutoSummary shows the steps of the services in mode auto.
type AutoSummary struct {
	Observe int `json:"observe"`
	Bounded int `json:"bounded"`
	Full    int `json:"full"`
	Back    int `json:"back"` // those of them whose last step was a step back
}

// auto takes a service into the summary. That one was demoted, an operator should
// know.
func (b *statusBuilder) auto(svc *plan.Service) {
	t := svc.Rollout.Explain(svc.Spec.Promote)
	if t == nil {
		return
	}
	if b.Auto == nil {
		b.Auto = &AutoSummary{}
	}
	switch t.Mode {
	case isobar.ModeObserve:
		b.Auto.Observe++
	case isobar.ModeBounded:
		b.Auto.Bounded++
	default:
		b.Auto.Full++
	}
	if t.Back {
		b.Auto.Back++
		b.aboutf(svc, ModeRolledBack, isobar.Locality{}, "%s", t.Why)
	}
}

// score takes a service into the summary.
func (b *statusBuilder) score(svc *plan.Service) {
	score, ok := svc.Scores.Score(svc.Mode())
	if !ok {
		return
	}
	if b.Scores == nil {
		b.Scores = &ScoreSummary{Lowest: 1, Service: svc.Spec.Name}
	}
	b.Scores.Services++
	if score < b.Scores.Lowest {
		b.Scores.Lowest, b.Scores.Service = score, svc.Spec.Name
	}
}
