package server

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/listen"
)

// refusedFile is why the configuration file, as it is now, is not in force; nil
// when it is.
type refusedFile struct{ why atomic.Pointer[string] }

func (r *refusedFile) note(err error) {
	if _, held := errors.AsType[*heldChangeError](err); err == nil || held { // what is held is told apart
		r.why.Store(nil)
		return
	}
	text := err.Error()
	r.why.Store(&text)
}

// troubles tells operators what needs their attention beside the plan.
func (s *Server) troubles() []admin.Attention {
	out := slices.Concat(s.heldTroubles(), s.fileTroubles(), s.upstreamTroubles(), s.dnsTroubles(), s.kubernetesTroubles(),
		s.budgetTroubles(), s.clockTroubles(), s.missingTroubles(),
		s.refusedCheckers())
	if s.replicas != nil {
		state := operatedReplicas{s.replicas}.State()
		out = append(out, state.Attention()...)
	}
	if why := s.tracing.Trouble(); why != "" {
		out = append(out, admin.NewAttention(admin.TraceStopped, "the rolling trace has stopped: %s", why))
	}
	return out
}

// refusedCheckers names the checkers that are refused again and again.
func (s *Server) refusedCheckers() (out []admin.Attention) {
	for _, c := range s.gate.RefusedCheckers() {
		out = append(out, admin.NewAttention(admin.CheckerRefused, "the checker %s is refused again and again: %s", c.Name, c.Why).By(c.Name))
	}
	return out
}

// heldTroubles tells what of the configuration is not in force because clients
// need what it removes.
func (s *Server) heldTroubles() []admin.Attention {
	held := s.heldState()
	if held == nil {
		return nil
	}
	var out []admin.Attention
	note := func(service, text string) {
		out = append(out, admin.NewAttention(admin.RemovalHeld, "%s", text).Of(service).See("isobar reload --confirm %s", held.Digest))
	}
	if held.Removes != "" {
		note("", (&heldChangeError{digest: held.Digest, what: held.Removes}).Error())
	}
	for _, h := range held.Services {
		note(h.Service, heldText(h.Service, h.Rate, held.Digest))
	}
	return out
}

// fileTroubles tells which files hold what can't be used, so that what they held
// before is in force: until a restart, which would fail by them, or go on with
// what clients refuse.
func (s *Server) fileTroubles() []admin.Attention {
	const before = "; what stood there before is in force, but not after a restart"
	var out []admin.Attention
	if why := s.badFile.why.Load(); why != nil {
		out = append(out, admin.NewAttention(admin.FileRefused, "the configuration file is refused: %s", *why+before).See("isobar check %s", s.opts.File))
	}
	note := func(what, why string) {
		if why != "" {
			out = append(out, admin.NewAttention(admin.FileRefused, "the %s on disk can't be used: %s", what, why+before))
		}
	}
	for _, c := range s.shownCertificates() {
		note("certificate files of the listener "+c.Listener, c.Refused())
	}
	if t := s.gate.Token(); t != nil {
		note("token file", t.Refused())
	}
	if _, _, shown, err := s.sourceFiles().Validity(); shown && err != nil {
		out = append(out, admin.NewAttention(admin.FileRefused,
			"the certificate of discovery.xds can't be used: %v; the next connection to the other control plane fails", err))
	}
	return out
}

// sourceFiles are what is shown to the control plane that lists endpoints; zero
// where there is none. They are read for each connection.
func (s *Server) sourceFiles() identity.DialFiles {
	source := s.current.Load().Discovery.XDS
	if source == nil || source.TLS == nil {
		return identity.DialFiles{}
	}
	return identity.DialFiles{CA: source.TLS.CA, Cert: source.TLS.Cert, Key: source.TLS.Key}
}

// shownCertificates are those of the listeners, that for peers included.
func (s *Server) shownCertificates() []listen.Shown {
	all := s.gate.Certificates()
	if r := s.replicas; r != nil && r.certificates != nil {
		all = append(all, listen.Shown{Certificates: r.certificates, Listener: replicaListener})
	}
	return all
}

// certificates lists those that the server shows: on its listeners, and to the
// control plane that lists endpoints.
func (s *Server) certificates() []admin.Certificate {
	var out []admin.Certificate
	for _, c := range s.shownCertificates() {
		from, until := c.Validity()
		out = append(out, admin.Certificate{Name: c.Listener, NotBefore: from, NotAfter: until})
	}
	if from, until, shown, err := s.sourceFiles().Validity(); shown && err == nil {
		out = append(out, admin.Certificate{Name: admin.DiscoveryCertificate, NotBefore: from, NotAfter: until})
	}
	return out
}

// clockTroubles tells that the clock of the machine went back.
func (s *Server) clockTroubles() []admin.Attention {
	back, before := s.loop.ClockWentBack()
	if back == 0 {
		return nil
	}
	a := admin.NewAttention(admin.ClockWentBack, "the clock of this machine went back by %s: it had shown %s; "+
		"ages and ends of certificates are wrong while it is, so mend its time service",
		back.Round(time.Second), before.UTC().Format(time.RFC3339))
	if len(s.loop.Unsaved()) > 0 {
		a.Text += "; while state can't be saved, versions after a reboot may repeat"
		a = a.As(admin.Critical)
	}
	return []admin.Attention{a}
}
