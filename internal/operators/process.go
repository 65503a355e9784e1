package operators

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/listen"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/xds"
)

// Process is the server as operators watch it. It implements [admin.Process].
type Process struct {
	Live          func() *config.Live // in force
	Gate          *listen.Gate
	XDS           *xds.Server
	LRS           *lrs.Server
	HDS           *hds.Server
	Loop          *control.Loop
	Configuration Attentive
	Providers     Attentive
	Clients       *Clients
	Recordings    *Recordings
	Archiver      *Archiver
	Group         admin.Replicas // nil = this server is alone
	// Shown returns the certificates of all listeners, that for other replicas included.
	Shown func() []listen.Shown
}

// Attentive tells operators what needs attention.
type Attentive interface{ Attention() []admin.Attention }

// Stopping implements [admin.Process].
func (p *Process) Stopping() bool {
	select {
	case <-p.Loop.Left():
		return true
	default:
		return false
	}
}

// Stall implements [admin.Process].
func (p *Process) Stall() time.Duration {
	return max(admin.DefaultStall, 3*p.Live().Tick)
}

// Unsaved implements [admin.Process].
func (p *Process) Unsaved() []string {
	out := p.Loop.Unsaved()
	if why := p.Archiver.Unsaved(); why != "" {
		out = append(out, "the history of the last day: "+why)
	}
	return out
}

// Attention implements [admin.Process].
func (p *Process) Attention() []admin.Attention {
	out := slices.Concat(p.Configuration.Attention(), p.fileTroubles(), p.Providers.Attention(),
		p.budgetTroubles(), p.clockTroubles(), p.Clients.Attention(),
		p.refusedCheckers(), p.authorityTroubles(time.Now()))
	if p.Group != nil {
		state := p.Group.State()
		out = append(out, state.Attention()...)
	}
	if why := p.Recordings.Trouble(); why != "" {
		out = append(out, admin.NewAttention(admin.TraceStopped, "the rolling trace has stopped: %s", why))
	}
	return out
}

// refusedCheckers names the checkers that are refused again and again.
func (p *Process) refusedCheckers() (out []admin.Attention) {
	for _, c := range p.Gate.RefusedCheckers() {
		out = append(out, admin.NewAttention(admin.CheckerRefused, "Isobar repeatedly refuses the checker %s: %s", c.Name, c.Why).By(c.Name))
	}
	return out
}

// fileTroubles returns which certificates and tokens on disk can't be used, so that the previous
// ones are in force: until a restart, which would fail by them, or go on with what
// clients refuse.
func (p *Process) fileTroubles() []admin.Attention {
	var out []admin.Attention
	note := func(what, why string) {
		if why != "" {
			out = append(out, admin.NewAttention(admin.FileRefused,
				"Isobar can't use the %s on disk: %s; the previous content stays in force until a restart", what, why))
		}
	}
	for _, c := range p.Shown() {
		note("certificate files of the listener "+c.Listener, c.Refused())
	}
	if t := p.Gate.Token(); t != nil {
		note("token file", t.Refused())
	}
	if _, _, shown, err := p.sourceFiles().Validity(); shown && err != nil {
		out = append(out, admin.NewAttention(admin.FileRefused,
			"the certificate of discovery.xds can't be used: %v; the next connection to the other control plane fails", err))
	}
	return out
}

// authorityTroubles tells which authorities that sign the certificates of clients have ended,
// or soon end.
func (p *Process) authorityTroubles(now time.Time) (out []admin.Attention) {
	for _, c := range p.Shown() {
		for _, x := range c.Authorities() {
			ca := admin.Authority{Certificate: admin.Certificate{Name: c.Listener, NotBefore: x.From, NotAfter: x.Until}, Subject: x.Name}
			if a, needs := ca.Attention(now); needs {
				out = append(out, a)
			}
		}
	}
	return out
}

// clockTroubles tells that the clock of the machine went back.
func (p *Process) clockTroubles() []admin.Attention {
	back, before := p.Loop.ClockWentBack()
	if back == 0 {
		return nil
	}
	a := admin.NewAttention(admin.ClockWentBack, "the clock of this machine went back by %s, from %s: "+
		"ages and certificate expiry are wrong until the clock is correct, so fix its time service",
		back.Round(time.Second), before.UTC().Format(time.RFC3339))
	if len(p.Loop.Unsaved()) > 0 {
		a.Text += "; while state can't be saved, versions after a reboot may repeat"
		a = a.As(admin.Critical)
	}
	return []admin.Attention{a}
}

// sourceFiles are what is shown to the control plane that lists endpoints; zero
// where there is none. They are read for each connection.
func (p *Process) sourceFiles() identity.DialFiles {
	source := p.Live().Discovery.XDS
	if source == nil || source.TLS == nil {
		return identity.DialFiles{}
	}
	return identity.DialFiles{CA: source.TLS.CA, Cert: source.TLS.Cert, Key: source.TLS.Key}
}

// Certificates implements [admin.Process]: it lists those that the server shows on its
// listeners, and to the control plane that lists endpoints.
func (p *Process) Certificates() []admin.Certificate {
	var out []admin.Certificate
	for _, c := range p.Shown() {
		from, until := c.Validity()
		out = append(out, admin.Certificate{Name: c.Listener, NotBefore: from, NotAfter: until})
	}
	if from, until, shown, err := p.sourceFiles().Validity(); shown && err == nil {
		out = append(out, admin.Certificate{Name: admin.DiscoveryCertificate, NotBefore: from, NotAfter: until})
	}
	return out
}

// nearlyUsed is the part of a limit from which on it is told, so that there is time to
// raise it before clients are refused.
const nearlyUsed = 0.8

// budgetTroubles lists the limits that are used to nearlyUsed or more: what comes
// above them is refused.
func (p *Process) budgetTroubles() []admin.Attention {
	use := p.Gate.Use()
	var out []admin.Attention
	note := func(used, most int64, format string, args ...any) {
		if nearly(used, most) {
			out = append(out, admin.NewAttention(admin.BudgetNearlyUsed, format, append([]any{used, most}, args...)...))
		}
	}
	how := "raise xds.admission.max_connections"
	if use.ByFiles {
		how = "the limit of open files allows no more: raise it (LimitNOFILE in systemd, ulimit -n)"
	}
	note(int64(use.Connections), int64(use.MostConnections), "%d of %d connections of clients are in use: %s", how)
	note(int64(use.FullestAddress.Used), int64(use.FullestAddress.Most), "%d of %d connections that one address may have are used by %s: %s; "+
		"behind a load balancer, set xds.proxy_protocol.from", use.FullestAddress.Peer, how)
	for _, x := range []struct {
		what string
		of   func() (int, int)
	}{{"discovery streams", p.XDS.Streams}, {"load report streams", p.LRS.Streams}} {
		open, most := x.of()
		note(int64(open), int64(most), "%d of %d %s are open: raise xds.max_streams", x.what)
	}
	checkers, most := p.HDS.Connections()
	note(int64(checkers), int64(most), "%d of %d checkers are connected, and the limit is fixed: run fewer checkers")
	for _, peer := range use.Peers {
		for _, x := range []struct {
			admission.Use

			what, setting string
		}{{peer.Streams, "streams of one kind", "peer_streams"}, {peer.Localities, "localities", "peer_localities"}} {
			note(int64(x.Used), int64(x.Most), "%d of %d %s that one client may use are used by the %s: raise xds.admission.%s",
				x.what, fmt.Sprintf("%.200s", x.Peer), x.setting)
		}
	}
	return append(out, p.memoryTroubles(&use)...)
}

// memoryTroubles does so for limits of memory.
func (p *Process) memoryTroubles(use *listen.Use) []admin.Attention {
	var out []admin.Attention
	note := func(used, most int64, format string) {
		const mebi = 1 << 20
		if nearly(used, most) {
			out = append(out, admin.NewAttention(admin.BudgetNearlyUsed, format, (used+mebi-1)/mebi, most/mebi))
		}
	}
	const certificates = ", or give its clients certificates"
	used, most := p.XDS.NameMemory()
	note(used, most, "the names that clients subscribe to take %d of %d MiB: raise xds.admission.name_megabytes")
	used, most = p.XDS.AccountMemory()
	note(used, most, "the names that clients of one address without certificate subscribe to take %d of %d MiB: raise xds.admission.name_megabytes"+certificates)
	used, most, ofOne, mostOfOne := p.XDS.PollMemory()
	note(used, most, "subscriptions of clients that poll take %d of %d MiB, and the limit is fixed: let these clients open streams")
	note(ofOne, mostOfOne, "subscriptions of clients that poll from one address without certificate take %d of %d MiB, and the limit is fixed: "+
		"let these clients open streams"+certificates)
	used, most, ofOne, mostOfOne = p.LRS.ReportMemory()
	note(used, most, "load reports until the next tick take %d of %d MiB: raise xds.admission.report_megabytes")
	note(ofOne, mostOfOne, "load reports of one address without certificate take %d of %d MiB until the next tick: "+
		"raise xds.admission.report_megabytes"+certificates)
	kept := p.Loop.LoadMemory()
	note(int64(kept.Used), int64(kept.Most), "the load of clients takes %d of %d MiB; "+
		"above this limit Isobar ignores the load of new ones: raise xds.admission.report_megabytes")
	note(int64(kept.Fullest), int64(kept.MostOfOne), "the load of the clients of one address without certificate takes %d of %d MiB; "+
		"above this limit Isobar ignores the load of new ones: raise xds.admission.report_megabytes"+certificates)
	note(use.Messages, use.MostMessages, "unprocessed messages of clients take %d of %d MiB; above this limit Isobar closes the connections that hold most")
	return out
}

func nearly(used, most int64) bool { return most > 0 && float64(used) >= nearlyUsed*float64(most) }

// Operations is what operators see of the loop and of health checks, and do with them. It
// implements [admin.Planner], [admin.Operator] and [admin.HealthChecks]; what it does not
// define is the loop's.
type Operations struct {
	*control.Loop

	HDS *hds.Server
}

// Explain implements [admin.Planner].
func (o Operations) Explain(p *plan.Plan, service string, source isobar.Locality) (plan.Explanation, error) {
	return p.Explain(service, source)
}

// Breaches implements [admin.Operator].
func (o Operations) Breaches(ctx context.Context, d *admin.Drain) ([]string, error) {
	if len(d.Services) > 0 {
		return o.BreachesOf(ctx, d.Services)
	}
	return o.Loop.Breaches(ctx, d.Health)
}

// Health implements [admin.HealthChecks].
func (o Operations) Health(ctx context.Context, service string) ([]health.ServiceReport, error) {
	found, err := o.Loop.Health(ctx, service)
	o.HDS.AddMetadata(found)
	return found, err
}

// Checkers implements [admin.HealthChecks].
func (o Operations) Checkers() []admin.Checker {
	connected := o.HDS.Checkers(time.Now())
	out := make([]admin.Checker, len(connected))
	for i := range connected {
		c := &connected[i]
		out[i] = admin.Checker{
			ID: c.ID, Locality: c.Locality, Agent: c.UserAgent, Peer: c.Address, Since: c.Since, APIVersion: c.APIVersion, Protocols: c.Protocols.String(),
			Polling: c.Polling, Designated: c.Designated, LastReport: c.LastReport, Rejected: c.Rejected, Reason: c.LastReason,
		}
	}
	return out
}
