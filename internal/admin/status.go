package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Status is the body of GET /v1/status: is everything in order.
type Status struct {
	OK        bool     `json:"ok"`        // nothing needs attention
	Attention []string `json:"attention"` // what does, at most maxAttention

	Version    string    `json:"version"` // of the plan in force; empty before the first
	Made       time.Time `json:"made,omitzero"`
	AgeSeconds float64   `json:"age_seconds"` // of the plan
	Stopping   bool      `json:"stopping,omitempty"`

	Ticks       uint64  `json:"ticks"`        // decisions since the start of the process
	TickSeconds float64 `json:"tick_seconds"` // what the last one took

	Services int           `json:"services"`
	Demand   float64       `json:"demand"` // requests/s, of all services
	Coverage float64       `json:"coverage"`
	Holds    []Held        `json:"holds"`    // services whose weights are held, but for paused ones
	Degraded []Degraded    `json:"degraded"` // services for which inputs are missing
	Paused   plan.Pauses   `json:"paused"`   // by operators
	Clients  ClientSummary `json:"clients"`
	Checkers int           `json:"checkers"`
	Unsaved  []string      `json:"unsaved"` // what can't be written to the state directory

	Held *HeldConfiguration `json:"held,omitempty"` // of the configuration file

	// UnknownClusters are those in load reports of the last minutes that are no
	// services, sorted, at most 100.
	UnknownClusters []string `json:"unknown_clusters,omitempty"`

	Certificates []Certificate `json:"certificates"` // that the server shows

	Auto   *AutoSummary  `json:"auto,omitempty"`   // how far services in mode auto have come; nil: there are none
	Scores *ScoreSummary `json:"scores,omitempty"` // what was predicted against what was seen; nil: too little to tell

	N1 *ReserveSummary `json:"n1,omitempty"` // what the loss of a zone would do; nil: not known
}

// Held is a service whose weights are held.
type Held struct {
	Service string `json:"service"`
	Reason  string `json:"reason"`
}

// ClientSummary counts the clients by state.
type ClientSummary struct {
	Total            int     `json:"total"`
	InSync           int     `json:"in_sync"`
	Behind           int     `json:"behind"`             // something sent is not accepted yet
	Refusing         int     `json:"refusing"`           // something sent was rejected and not accepted since
	Reporting        int     `json:"reporting"`          // have a load report stream
	OldestAckSeconds float64 `json:"oldest_ack_seconds"` // of what clients that are behind were sent
	OldestAck        string  `json:"oldest_ack,omitempty"`
}

// Bounds of a Status.
const (
	maxAttention = 20
	maxHolds     = 20
	// maxBehind is for how long a client may be behind without a word.
	maxBehind = 30 * time.Second
	// statusPatience bounds the wait for what the loop has to tell.
	statusPatience = 2 * time.Second
)

// getStatus answers GET /v1/status.
func (s *Server) getStatus(w http.ResponseWriter, r *http.Request) {
	reply(w, http.StatusOK, s.status(r.Context(), s.opts.Planner.Current()))
}

// status tells how things stand with a plan, which is nil before the first.
func (s *Server) status(ctx context.Context, p *plan.Plan) Status {
	b := &statusBuilder{Status: Status{
		Holds: []Held{}, Degraded: []Degraded{}, Paused: plan.Pauses{}, Attention: []string{}, Unsaved: []string{}, Certificates: []Certificate{}, Coverage: 1,
	}}
	if wrong := s.stalled(); wrong != "" {
		b.attendf("%s", wrong)
	}
	if b.Stopping = s.opts.Stopping(); b.Stopping {
		b.attendf("the server is stopping")
	}
	if s.opts.Ticks != nil {
		count, took := s.opts.Ticks()
		b.Ticks, b.TickSeconds = count, took.Seconds()
	}
	b.plan(p)
	b.clients(s.opts.Clients())
	b.health(ctx, s)
	if s.opts.Unsaved != nil {
		for _, text := range s.opts.Unsaved() {
			b.Unsaved = append(b.Unsaved, text)
			b.attendf("not saved: %s; serving goes on from memory, but a restart would go back", text)
		}
	}
	if s.opts.Held != nil {
		b.Held = s.opts.Held()
	}
	if s.opts.UnknownClusters != nil {
		b.UnknownClusters = s.opts.UnknownClusters()
	}
	if s.opts.Attention != nil {
		for _, text := range s.opts.Attention() {
			b.attendf("%s", oneLine(text))
		}
	}
	if s.opts.Certificates != nil {
		b.certificates(s.opts.Certificates(), time.Now())
	}
	if s.opts.Reserves != nil {
		b.reserves(s.opts.Reserves())
	}
	if n := b.more; n > 0 {
		b.Attention = append(b.Attention, fmt.Sprintf("and %d more", n))
	}
	b.OK = len(b.Attention) == 0
	return b.Status
}

type statusBuilder struct {
	Status

	more int // things that need attention and are not listed
}

func (b *statusBuilder) attendf(format string, args ...any) {
	if len(b.Attention) >= maxAttention {
		b.more++
		return
	}
	b.Attention = append(b.Attention, fmt.Sprintf(format, args...))
}

func (b *statusBuilder) plan(p *plan.Plan) {
	if p == nil {
		b.attendf("no plan has been published yet")
		return
	}
	b.Version, b.Made, b.AgeSeconds, b.Services = p.VersionString(), p.Made, seconds(time.Since(p.Made)), len(p.Services)
	b.Paused = append(b.Paused, p.Paused...)
	covered := 0.0
	for _, svc := range p.Services {
		demand := b.service(p, svc)
		b.Demand += demand
		covered += demand * svc.Coverage
		b.score(svc)
		b.auto(svc)
		if text := svc.Damping.String(); text != "" {
			b.attendf("%s: %s", svc.Spec.Name, text)
		}
	}
	if b.Demand > 0 {
		b.Coverage = covered / b.Demand
	}
	for _, v := range p.Violations {
		b.attendf("%s: the check refused a plan: %s: %s", v.Service, v.Rule, v.Text)
	}
}

// longestAbsence is a restart of Isobar and the longest pause that Envoy makes before
// it connects again, which is 20 s.
const longestAbsence = 30 * time.Second

// lifetimes tells of assignments that end while Isobar restarts.
func (b *statusBuilder) lifetimes(spec *isobar.Service) {
	for _, x := range []struct {
		field string
		set   time.Duration
	}{{"endpoint_stale_after", spec.Assignment.EndpointStaleAfter}, {"resource_ttl", spec.Assignment.ResourceTTL}} {
		if x.set > 0 && x.set < longestAbsence {
			b.attendf("%s: %s %s is shorter than a restart of Isobar and Envoy's pause before it connects again (up to 20 s): clients lose endpoints that work; "+
				"write %s or more", spec.Name, x.field, x.set, longestAbsence)
		}
	}
}

// service looks at one service and gives its demand.
func (b *statusBuilder) service(p *plan.Plan, svc *plan.Service) (demand float64) {
	name := svc.Spec.Name
	if svc.Result == nil {
		return 0
	}
	for i := range svc.Result.Sources {
		demand += svc.Result.Sources[i].Demand
	}
	if svc.Hold != "" && svc.Paused == nil {
		if len(b.Holds) < maxHolds {
			b.Holds = append(b.Holds, Held{Service: name, Reason: svc.Hold})
		}
		b.attendf("%s: weights are held: %s", name, svc.Hold)
	}
	b.degraded(svc)
	b.lifetimes(svc.Spec)
	if svc.Result.Drop > 0 {
		b.attendf("%s: clients drop %.1f%% of their requests", name, 100*svc.Result.Drop)
	}
	switch {
	case svc.Solution == nil:
	case svc.Solution.CeilingScale > raisedSlack:
		b.attendf("%s: demand does not fit: ceilings are raised by %.1f%%", name, 100*(svc.Solution.CeilingScale-1))
	default:
		others := ", and nothing else takes it"
		if svc.HasRoom() {
			others = ", though others have room"
		}
		for _, o := range svc.Overloads() {
			b.attendf("%s: %s is planned at %.0f%% of its declared capacity%s: isobar explain %s tells why it stays there",
				name, o.Locality, 100*o.Used, others, name)
		}
	}
	for i := range svc.Sites {
		site := &svc.Sites[i]
		switch {
		case site.Drained:
			b.attendf("%s: %s is drained: %d of %d endpoints are healthy", name, site.Group.Locality, site.Group.Usable(), len(site.Group.Endpoints))
		case len(site.Group.Endpoints) > 0 && site.Group.Usable() == 0:
			b.attendf("%s: no endpoint in %s is healthy", name, site.Group.Locality)
		}
	}
	for _, text := range slices.Concat(svc.Outages(), svc.Failures()) {
		b.attendf("%s: %s", name, text)
	}
	for _, text := range svc.Contradictions() {
		b.attendf("%s: %s", name, text)
	}
	for _, text := range p.LimitWarnings(svc) {
		b.attendf("%s: %s", name, text)
	}
	for _, d := range svc.Findings.Deviating {
		b.attendf("%s: clients in %s are off their shares by %.0f points: %s", name, d.Source, d.Points, d.Cause)
	}
	return demand
}

// raisedSlack is the factor up to which a raised ceiling is a rounding error.
const raisedSlack = 1.001

func (b *statusBuilder) clients(all []Client) {
	b.Clients.Total = len(all)
	late := 0
	for i := range all {
		c := &all[i]
		if c.LRS != nil {
			b.Clients.Reporting++
		}
		refuses := ""
		for name, t := range c.Types {
			if t.Rejected > 0 {
				refuses = name
			}
			if c.Polls { // it tells when it asks again, and is forgotten when it does not
				continue
			}
			if !t.InSync && t.AgeSeconds > b.Clients.OldestAckSeconds {
				b.Clients.OldestAckSeconds, b.Clients.OldestAck = t.AgeSeconds, c.ID
			}
			if !t.InSync && t.AgeSeconds > maxBehind.Seconds() && t.Rejected == 0 {
				late++
			}
		}
		switch {
		case refuses != "":
			b.Clients.Refusing++
		case c.InSync:
			b.Clients.InSync++
		default:
			b.Clients.Behind++
		}
	}
	if n := b.Clients.Refusing; n > 0 {
		b.attendf("%d clients refuse what they are sent: isobar clients tells why", n)
	}
	if late > 0 {
		b.attendf("%d subscriptions have not been acknowledged for more than %s", late, maxBehind)
	}
}

func (b *statusBuilder) health(ctx context.Context, s *Server) {
	if s.opts.Checkers != nil {
		b.Checkers = len(s.opts.Checkers())
	}
	if s.opts.Health == nil || b.Stopping {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	overview := s.opts.HealthOverview
	if overview == nil {
		overview = func(ctx context.Context) ([]health.ServiceReport, error) { return s.opts.Health(ctx, "") }
	}
	services, err := overview(ctx)
	if err != nil {
		b.attendf("the control loop does not answer: %v", err)
		return
	}
	for i := range services {
		r := &services[i]
		if r.Alarm != nil {
			b.attendf("%s: %s", r.Service, r.Alarm.Why)
		}
		if r.Summary.FailOpen {
			b.attendf("%s: every endpoint is down: all of them are tried", r.Service)
		}
		if r.Suspicion != nil {
			b.attendf("%s: %s", r.Service, r.Suspicion.Text())
		}
		if n := len(r.Shortfalls); n > 0 {
			b.attendf("%s: %s", r.Service, shortOf(r.Shortfalls))
		}
	}
}

// shortOf describes endpoints that did not get the checkers asked for. Where none
// of them has any, for one reason, that reason is all there is to say.
func shortOf(list []health.Shortfall) string {
	for i := range list {
		if list[i].Checkers > 0 || list[i].Why != list[0].Why {
			return fmt.Sprintf("%d endpoints have fewer checkers, or in fewer zones, than asked for", len(list))
		}
	}
	return fmt.Sprintf("nobody probes %d endpoints: %s", len(list), list[0].Why)
}

func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }
