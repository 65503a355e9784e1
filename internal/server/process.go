package server

import (
	"fmt"
	"slices"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/listen"
	"github.com/isobar-xds/isobar/internal/providers"
	"github.com/isobar-xds/isobar/internal/reload"
)

// process is the server as operators watch it. It implements [admin.Process].
type process struct {
	settings      *reload.Settings
	gate          *listen.Gate
	services      *services
	loop          *control.Loop
	configuration *reload.Configuration
	providers     *providers.Set
	clients       *clients
	recordings    *recordings
	archiver      *archiver
	replicas      *replicas // nil = this server is alone
}

// Stopping implements [admin.Process].
func (p *process) Stopping() bool {
	select {
	case <-p.loop.Left():
		return true
	default:
		return false
	}
}

// Stall implements [admin.Process].
func (p *process) Stall() time.Duration {
	return max(admin.DefaultStall, 3*p.settings.Current().Tick)
}

// Unsaved implements [admin.Process].
func (p *process) Unsaved() []string {
	out := p.loop.Unsaved()
	if why := p.archiver.unsaved(); why != "" {
		out = append(out, "the history of the last day: "+why)
	}
	return out
}

// Attention implements [admin.Process].
func (p *process) Attention() []admin.Attention {
	out := slices.Concat(p.configuration.Attention(), p.fileTroubles(), p.providers.Attention(),
		p.budgetTroubles(), p.clockTroubles(), p.clients.troubles(),
		p.refusedCheckers())
	if p.replicas != nil {
		state := operatedReplicas{p.replicas}.State()
		out = append(out, state.Attention()...)
	}
	if why := p.recordings.trouble(); why != "" {
		out = append(out, admin.NewAttention(admin.TraceStopped, "the rolling trace has stopped: %s", why))
	}
	return out
}

// refusedCheckers names the checkers that are refused again and again.
func (p *process) refusedCheckers() (out []admin.Attention) {
	for _, c := range p.gate.RefusedCheckers() {
		out = append(out, admin.NewAttention(admin.CheckerRefused, "the checker %s is refused again and again: %s", c.Name, c.Why).By(c.Name))
	}
	return out
}

// fileTroubles tells which certificates and tokens on disk can't be used, so that those of
// before are in force: until a restart, which would fail by them, or go on with what
// clients refuse.
func (p *process) fileTroubles() []admin.Attention {
	var out []admin.Attention
	note := func(what, why string) {
		if why != "" {
			out = append(out, admin.NewAttention(admin.FileRefused,
				"the %s on disk can't be used: %s; what stood there before is in force, but not after a restart", what, why))
		}
	}
	for _, c := range p.shownCertificates() {
		note("certificate files of the listener "+c.Listener, c.Refused())
	}
	if t := p.gate.Token(); t != nil {
		note("token file", t.Refused())
	}
	if _, _, shown, err := p.sourceFiles().Validity(); shown && err != nil {
		out = append(out, admin.NewAttention(admin.FileRefused,
			"the certificate of discovery.xds can't be used: %v; the next connection to the other control plane fails", err))
	}
	return out
}

// clockTroubles tells that the clock of the machine went back.
func (p *process) clockTroubles() []admin.Attention {
	back, before := p.loop.ClockWentBack()
	if back == 0 {
		return nil
	}
	a := admin.NewAttention(admin.ClockWentBack, "the clock of this machine went back by %s: it had shown %s; "+
		"ages and ends of certificates are wrong while it is, so mend its time service",
		back.Round(time.Second), before.UTC().Format(time.RFC3339))
	if len(p.loop.Unsaved()) > 0 {
		a.Text += "; while state can't be saved, versions after a reboot may repeat"
		a = a.As(admin.Critical)
	}
	return []admin.Attention{a}
}

// sourceFiles are what is shown to the control plane that lists endpoints; zero
// where there is none. They are read for each connection.
func (p *process) sourceFiles() identity.DialFiles {
	source := p.settings.Current().Discovery.XDS
	if source == nil || source.TLS == nil {
		return identity.DialFiles{}
	}
	return identity.DialFiles{CA: source.TLS.CA, Cert: source.TLS.Cert, Key: source.TLS.Key}
}

// shownCertificates are those of the listeners, that for peers included.
func (p *process) shownCertificates() []listen.Shown {
	all := p.gate.Certificates()
	if r := p.replicas; r != nil && r.certificates != nil {
		all = append(all, listen.Shown{Certificates: r.certificates, Listener: replicaListener})
	}
	return all
}

// Certificates implements [admin.Process]: it lists those that the server shows on its
// listeners, and to the control plane that lists endpoints.
func (p *process) Certificates() []admin.Certificate {
	var out []admin.Certificate
	for _, c := range p.shownCertificates() {
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
func (p *process) budgetTroubles() []admin.Attention {
	use := p.gate.Use()
	var out []admin.Attention
	note := func(used, most int64, format string, args ...any) {
		if most > 0 && float64(used) >= nearlyUsed*float64(most) {
			out = append(out, admin.NewAttention(admin.BudgetNearlyUsed, format, append([]any{used, most}, args...)...))
		}
	}
	how := "raise xds.admission.max_connections"
	if use.ByFiles {
		how = "the limit of open files allows no more: raise it (LimitNOFILE in systemd, ulimit -n)"
	}
	note(int64(use.Connections), int64(use.MostConnections), "%d of %d connections of clients are in use: %s", how)
	for _, x := range []struct {
		what string
		of   func() (int, int)
	}{{"discovery streams", p.services.xds.Streams}, {"load report streams", p.services.lrs.Streams}} {
		open, most := x.of()
		note(int64(open), int64(most), "%d of %d %s are open: raise xds.max_streams", x.what)
	}
	checkers, most := p.services.hds.Room()
	note(int64(checkers), int64(most), "%d of %d checkers are connected, and that limit is fixed: run fewer")
	const mebi = 1 << 20
	used, names := p.services.xds.NameMemory()
	note(used/mebi, names/mebi, "the names that clients subscribe to take %d of %d MiB: raise xds.admission.name_megabytes")
	used, reports, ofOne, mostOfOne := p.services.lrs.ReportMemory()
	note(used/mebi, reports/mebi, "load reports until the next tick take %d of %d MiB: raise xds.admission.report_megabytes")
	note(ofOne/mebi, mostOfOne/mebi, "load reports of one address without certificate take %d of %d MiB until the next tick: "+
		"raise xds.admission.report_megabytes, or give its clients certificates")
	note(use.Messages/mebi, use.MostMessages/mebi,
		"messages of clients that nobody has taken yet hold %d of %d MiB; above that the connections which hold most are closed")
	for _, peer := range use.Peers {
		for _, x := range []struct {
			admission.Use

			what, setting string
		}{{peer.Streams, "streams of one kind", "peer_streams"}, {peer.Localities, "localities", "peer_localities"}} {
			note(int64(x.Used), int64(x.Most), "%d of %d %s that one client may use are used by the %s: raise xds.admission.%s",
				x.what, fmt.Sprintf("%.200s", x.Peer), x.setting)
		}
	}
	return out
}
