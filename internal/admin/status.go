package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/plural"
)

// Status is the body of GET /v1/status: the state of the server.
type Status struct {
	OK        bool        `json:"ok"`             // nothing but notices needs attention
	Attention []Attention `json:"attention"`      // the most severe first, at most maxAttention
	More      int         `json:"more,omitempty"` // number of further items

	Version    string    `json:"version"` // of the plan in force; empty before the first
	Made       time.Time `json:"made,omitzero"`
	AgeSeconds float64   `json:"age_seconds"` // of the plan
	Stopping   bool      `json:"stopping,omitempty"`

	Ticks       uint64  `json:"ticks"`        // decisions since the start of the process
	TickSeconds float64 `json:"tick_seconds"` // duration of the last decision

	Services int           `json:"services"`
	Demand   float64       `json:"demand"` // requests/s, of all services
	Coverage float64       `json:"coverage"`
	Holds    []Held        `json:"holds"`    // services whose weights are held, except paused ones
	Degraded []Degraded    `json:"degraded"` // services for which inputs are missing
	Paused   plan.Pauses   `json:"paused"`   // by operators
	Clients  ClientSummary `json:"clients"`
	Checkers int           `json:"checkers"`
	Unsaved  []string      `json:"unsaved"` // state that can't be written to the state directory

	Held *HeldConfiguration `json:"held,omitempty"` // of the configuration file

	// UnknownClusters are clusters in load reports of the last minutes that are not services,
	// sorted, at most 100.
	UnknownClusters []string `json:"unknown_clusters,omitempty"`

	Certificates []Certificate `json:"certificates"` // that the server shows

	Auto   *AutoSummary  `json:"auto,omitempty"`   // steps of services in mode auto; nil: there are none
	Scores *ScoreSummary `json:"scores,omitempty"` // predictions compared with observations; nil: insufficient data

	N1 *ReserveSummary `json:"n1,omitempty"` // effect of the loss of a zone; nil: not known
}

// Held is a service whose weights are held.
type Held struct {
	Service string `json:"service"`
	Reason  string `json:"reason"`
}

// ClientSummary counts the clients by state.
type ClientSummary struct {
	Total            int     `json:"total"`
	Streams          int     `json:"streams"`            // discovery streams of all clients
	InSync           int     `json:"in_sync"`            // have accepted all responses, or got the last one less than 2 s ago
	Behind           int     `json:"behind"`             // have not accepted a response yet
	Refusing         int     `json:"refusing"`           // have rejected a response, and not accepted one since
	Reporting        int     `json:"reporting"`          // have a load report stream
	OldestAckSeconds float64 `json:"oldest_ack_seconds"` // of the oldest response that clients have not accepted
	OldestAck        string  `json:"oldest_ack,omitempty"`
}

// Bounds of a Status.
const (
	maxAttention = 100
	maxHolds     = 20
	// maxBehind is for how long a client may be behind without a word.
	maxBehind = 30 * time.Second
	// mostRefusal bounds the reason of a refusal in a sentence, in characters.
	mostRefusal = 160
	// statusPatience bounds the wait for what the loop has to tell.
	statusPatience = 2 * time.Second
)

// getStatus answers GET /v1/status: with ?service= what needs attention is that of the
// service.
func (s *statusAPI) getStatus(w http.ResponseWriter, r *http.Request) {
	service := r.URL.Query().Get("service")
	if service != "" && s.unknown(service) {
		s.failUnknownService(w, service)
		return
	}
	reply(w, http.StatusOK, s.statusOf(r.Context(), s.opts.Planner.Current(), service))
}

// status returns how things stand with a plan, which is nil before the first.
func (s *statusAPI) status(ctx context.Context, p *plan.Plan) Status { return s.statusOf(ctx, p, "") }

// statusOf is status with what needs attention of one service only, unless it is empty.
func (s *statusAPI) statusOf(ctx context.Context, p *plan.Plan, service string) Status {
	b := &statusBuilder{nearest: s.opts.Nearest, places: s.places.get, grouped: s.opts.Replicas != nil, overrides: s.overrides(), Status: Status{
		Holds: []Held{}, Degraded: []Degraded{}, Paused: plan.Pauses{}, Attention: []Attention{}, Unsaved: []string{}, Certificates: []Certificate{}, Coverage: 1,
	}}
	if wrong := s.stalled(); wrong != "" {
		b.attend(NewAttention(LoopStalled, "%s", wrong).See("curl http://ADMIN/debug/pprof/goroutine?debug=2"))
	}
	if b.Stopping = s.opts.Process.Stopping(); b.Stopping {
		b.attend(NewAttention(Stopping, "the server is stopping"))
	}
	count, took := s.opts.Planner.Ticks()
	b.Ticks, b.TickSeconds = count, took.Seconds()
	subscribers := s.opts.Fleet.Subscribers()
	clients := s.opts.Fleet.Clients()
	b.plan(p, subscribers)
	b.clients(clients)
	b.localities(p, clients)
	b.excess(clients, time.Now())
	b.health(ctx, s.core, service)
	for _, text := range s.opts.Process.Unsaved() {
		b.Unsaved = append(b.Unsaved, text)
		b.attend(NewAttention(NotSaved, "not saved: %s; Isobar continues from memory, but a restart would return to an earlier state", text))
	}
	if s.opts.Configuration != nil {
		b.Held = s.opts.Configuration.Held()
	}
	b.UnknownClusters = s.opts.Fleet.UnknownClusters()
	b.unknownClusters(p)
	b.subscribers(p, subscribers, time.Now())
	b.attend(s.opts.Process.Attention()...)
	b.certificates(s.opts.Process.Certificates(), time.Now())
	b.reserves(s.opts.Planner.Reserves())
	if service != "" {
		b.Attention = slices.DeleteFunc(b.Attention, func(a Attention) bool { return a.Service != service })
	}
	b.finish()
	return b.Status
}

type statusBuilder struct {
	Status

	grouped   bool // the server belongs to a group of replicas
	nearest   func(name string, names []string, most int) []string
	places    func(*plan.Plan) places            // that are known
	overrides map[string][]isobar.HealthOverride // what operators say, by service
}

func (b *statusBuilder) attend(items ...Attention) { b.Attention = append(b.Attention, items...) }

// finish sorts what needs attention, and lists no more than people read.
func (b *statusBuilder) finish() {
	b.OK = inOrder(b.Attention)
	sortAttention(b.Attention)
	if n := len(b.Attention); n > maxAttention {
		b.Attention, b.More = b.Attention[:maxAttention], n-maxAttention
	}
}

func (b *statusBuilder) plan(p *plan.Plan, clients []ServiceClients) {
	if p == nil {
		b.attend(NewAttention(NoPlan, "no plan has been published yet"))
		return
	}
	b.Version, b.Made, b.AgeSeconds, b.Services = p.VersionString(), p.Made, seconds(time.Since(p.Made)), len(p.Services)
	b.pauses(p)
	clients = silentOnly(clients)
	// Where nothing is sent the service counts of which least is known.
	covered, least := 0.0, 1.0
	for _, svc := range p.Services {
		silent := SilentOf(clients, svc.Spec.Name)
		demand, coverage := b.service(p, svc), svc.CoverageBesides(silent)
		b.Demand += demand
		covered += demand * coverage
		if len(silent) > 0 {
			least = min(least, coverage)
		}
		b.score(svc)
		b.auto(svc)
		if text := svc.Damping.String(); text != "" {
			b.aboutf(svc, SharesOscillate, isobar.Locality{}, "%s", text)
		}
	}
	b.Coverage = least
	if b.Demand > 0 {
		b.Coverage = covered / b.Demand
	}
	for _, v := range p.Violations {
		b.attend(NewAttention(PlanRefused, "%s: a plan violated the invariant %s: %s", v.Service, v.Rule, v.Text).Of(v.Service).See("isobar history %s", v.Service))
	}
}

// pauses tells what operators have frozen.
func (b *statusBuilder) pauses(p *plan.Plan) {
	b.Paused = append(b.Paused, p.Paused...)
	if n := plan.CountPaused(p.Services); n > 0 && n == len(p.Services) {
		all := plural.Of(n, "the weights of the only service", fmt.Sprintf("the weights of all %d services", n))
		b.attend(NewAttention(AllPaused, "%s are frozen and follow neither demand nor capacity: isobar resume ends the pause", all).See("isobar resume"))
		return
	}
	for i := range p.Paused {
		if x := &p.Paused[i]; x.Service != "" {
			b.attend(NewAttention(ServicePaused, "%s: %s", x.Service, x.String()).Of(x.Service).See("isobar resume %s", x.Service))
		}
	}
}

func (b *statusBuilder) clients(all []Client) {
	b.Clients.Total = len(all)
	late, oldest := 0, 0.0
	refusing := "" // what the first client that refuses said
	who := ""      // the node of that client
	hangs := ""    // of the clients that have not acknowledged, the one that has waited longest
	for i := range all {
		c := &all[i]
		b.Clients.Streams += c.Streams
		if c.LRS != nil || c.ReportsTo != "" {
			b.Clients.Reporting++
		}
		refuses := refusedOf(c)
		for _, t := range c.Types {
			if c.Polls { // it tells when it asks again, and is forgotten when it does not
				continue
			}
			if !t.InSync && t.AgeSeconds > b.Clients.OldestAckSeconds {
				b.Clients.OldestAckSeconds, b.Clients.OldestAck = t.AgeSeconds, c.ID
			}
			if !t.InSync && t.AgeSeconds > maxBehind.Seconds() && t.Rejected == 0 {
				late++
				if t.AgeSeconds > oldest {
					oldest, hangs = t.AgeSeconds, c.ID
				}
			}
		}
		switch {
		case refuses != "":
			if b.Clients.Refusing++; refusing == "" {
				refusing, who = refusalOf(c, refuses), c.ID
			}
		case c.Follows():
			b.Clients.InSync++
		default:
			b.Clients.Behind++
		}
	}
	if n := b.Clients.Refusing; n > 0 {
		b.attend(NewAttention(ClientsRefuse, "%s%s",
			plural.Count(n, "client rejects resources: ", "clients reject resources: one is "), refusing).By(who).See("isobar clients"))
	}
	if late > 0 {
		b.attend(NewAttention(ClientsBehind, "%s been acknowledged for more than %s, the longest by node %.64q: the clients or their connections hang",
			plural.Count(late, "subscription has not", "subscriptions have not"), maxBehind, hangs).By(hangs).See("isobar clients"))
	}
}

// refusedOf returns the first type of resource that a client refuses; empty for none.
func refusedOf(c *Client) (first string) {
	for name, t := range c.Types {
		if t.Rejected > 0 && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

// refusalOf names a client, the type of resource that it refuses, and the reason that it
// gives. The client chooses its node ID, its cluster and the reason: they are quoted and
// bounded.
func refusalOf(c *Client, name string) string {
	out := fmt.Sprintf("node %.64q (%.64q), %s", c.ID, c.Cluster, strings.ToUpper(name))
	if nack := c.Types[name].NACK; nack != nil && nack.Text != "" {
		out += fmt.Sprintf(": %.*q", mostRefusal, nack.Text)
	}
	return out
}

// health reports what checkers find, of all services or, unless it is empty, of one.
func (b *statusBuilder) health(ctx context.Context, s *core, service string) {
	if s.opts.HealthChecks == nil {
		return
	}
	b.Checkers = len(s.opts.HealthChecks.Checkers())
	if b.Stopping {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	services, err := s.opts.HealthChecks.HealthOverview(ctx)
	if err != nil {
		b.attend(NewAttention(LoopSilent, "the control loop does not answer: %v", err))
		return
	}
	for i := range services {
		b.verdicts(&services[i])
	}
	b.paths(services, service)
}

// paths reports paths on which probes fail. One path concerns the endpoints of many services: all
// of them are one thing to look at, but for who looks at one service only.
func (b *statusBuilder) paths(services []health.ServiceReport, only string) {
	endpoints, named := 0, []string{}
	for i := range services {
		if n := services[i].Summary.Divided; n > 0 && (only == "" || services[i].Service == only) {
			endpoints += n
			named = append(named, services[i].Service)
		}
	}
	if len(named) == 0 {
		return
	}
	const what = "checkers in some zones can't reach %s that checkers in other zones reach: the path is broken, and Isobar does not move traffic away"
	which := plural.Count(endpoints, "endpoint", "endpoints")
	if len(named) == 1 {
		b.attend(NewAttention(ProbePathFailing, "%s: "+what, named[0], which).Of(named[0]).See("isobar health %s", named[0]))
		return
	}
	slices.Sort(named)
	b.attend(NewAttention(ProbePathFailing, what, fmt.Sprintf("%s of %d services (%s)", which, len(named), someOf(named))).See("isobar health"))
}

// verdicts reports what checkers found of a service.
func (b *statusBuilder) verdicts(r *health.ServiceReport) {
	attend := func(code Code, text string) {
		b.attend(NewAttention(code, "%s: %s", r.Service, text).Of(r.Service).See("isobar health %s", r.Service))
	}
	if r.Alarm != nil {
		attend(MassFailureHeld, r.Alarm.Why)
	}
	if r.Summary.FailOpen {
		attend(AllEndpointsDown, "every endpoint is down, so clients try all of them")
	}
	if r.Suspicion != nil {
		attend(CheckersEnded, r.Suspicion.Text())
	}
	if len(r.Shortfalls) > 0 {
		attend(CheckersShort, shortOf(r.Shortfalls))
	}
}

// shortOf describes endpoints that did not get the checkers asked for. Where none
// of them has any, for one reason, that reason is all there is to say.
func shortOf(list []health.Shortfall) string {
	for i := range list {
		if list[i].Checkers > 0 || list[i].Why != list[0].Why {
			return plural.Count(len(list), "endpoint has", "endpoints have") + " fewer checkers than configured, or checkers in fewer zones"
		}
	}
	return fmt.Sprintf("no checker probes %s: %s", plural.Count(len(list), "endpoint", "endpoints"), list[0].Why)
}

func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// Certificate is one that the server shows.
type Certificate struct {
	Name      string    `json:"name"` // of the listener, or DiscoveryCertificate
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"` // of the chain's certificate that ends first
}

// Authority is a certificate of those in client_ca of a listener.
type Authority struct {
	Certificate

	Subject string
}

// Attention tells what needs attention about an authority, if anything does.
func (a *Authority) Attention(now time.Time) (Attention, bool) {
	out, needs := a.attention(now, fmt.Sprintf("%s in client_ca of the listener %s", a.Subject, a.Name), "clients whose certificates it signs are refused")
	return out.As(Warning), needs
}

// DiscoveryCertificate is the name of the certificate that is shown to the control
// plane that lists endpoints.
const DiscoveryCertificate = "discovery.xds"

// where tells in words who sees it, and what fails without it.
func (c *Certificate) where() (seen, fails string) {
	if c.Name == DiscoveryCertificate {
		return DiscoveryCertificate, "the next connection to the other control plane fails"
	}
	return "the listener " + c.Name, "new connections fail"
}

// certificateWarning is how long before its end a certificate needs attention:
// a weekend, a holiday and a day to spare.
const certificateWarning = 14 * 24 * time.Hour

// NeedsAttention reports whether a certificate ends soon: in less than 14 days,
// or where it was issued for less than eight weeks, in less than a quarter of
// that. Those who issue them for hours replace them at half of their time.
func (c *Certificate) NeedsAttention(now time.Time) bool {
	return c.NotAfter.Sub(now) < min(certificateWarning, c.NotAfter.Sub(c.NotBefore)/4)
}

// Attention tells what needs attention about a certificate, if anything does.
func (c *Certificate) Attention(now time.Time) (a Attention, needs bool) {
	seen, fails := c.where()
	return c.attention(now, seen, fails)
}

// attention does so for a certificate that is seen somewhere, and without which something fails.
func (c *Certificate) attention(now time.Time, seen, fails string) (a Attention, needs bool) {
	end := c.NotAfter.UTC().Format(time.RFC3339)
	switch {
	case !now.Before(c.NotAfter):
		return NewAttention(CertificateExpired, "the certificate of %s expired at %s: %s", seen, end, fails), true
	case now.Before(c.NotBefore):
		return NewAttention(CertificateExpired, "the certificate of %s is not valid before %s: %s", seen, c.NotBefore.UTC().Format(time.RFC3339), fails), true
	case c.NeedsAttention(now):
		return NewAttention(CertificateEnds, "the certificate of %s expires at %s: replace its files, no restart is needed", seen, end), true
	}
	return a, false
}

func (b *statusBuilder) certificates(all []Certificate, now time.Time) {
	b.Certificates = append(b.Certificates, all...)
	for i := range all {
		if a, needs := all[i].Attention(now); needs {
			b.attend(a)
		}
	}
}
