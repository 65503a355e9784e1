package server

import (
	"fmt"

	"github.com/isobar-xds/isobar/internal/config"
)

// reload puts a changed configuration file in force. An error keeps the old
// one; it is logged with its places by the watcher.
func (s *Server) reload(data []byte) error {
	next, warnings, err := config.Decode(s.opts.File, data)
	if err != nil {
		return err
	}
	if n := s.losesAll(next); n > 0 {
		return fmt.Errorf("%s:1:1: "+textLosesAll+"; "+fixLosesAll, s.opts.File, n)
	}
	for i := range warnings {
		s.log.Warn("configuration", "warning", warnings[i].String())
	}
	if err := s.configureSources(next); err != nil {
		return fmt.Errorf("%s: %w", s.opts.File, err)
	}
	s.keepIdentities(next)
	s.current.Store(next)
	s.lrs.Changed()
	s.loop.Retime()
	if fixed := needsRestart(&s.cfg, next); len(fixed) > 0 {
		s.log.Warn("configuration reloaded; some settings take effect at the next start only", "settings", fixed)
	}
	return nil
}

// keepIdentities leaves who may do what as it is where the next file asks for no
// certificates any more: that takes effect at the next start only, and until then
// everyone with a certificate could do everything.
func (s *Server) keepIdentities(next *config.Config) {
	if asksCertificates(&s.cfg.XDS) && !asksCertificates(&next.XDS) {
		now := s.current.Load()
		next.XDS.Identities, next.XDS.SubscribedOnly = now.XDS.Identities, now.XDS.SubscribedOnly
	}
}

func asksCertificates(x *config.XDS) bool { return x.TLS != nil && x.TLS.ClientCA != "" }

// What is said of a file that has lost its services.
const (
	textLosesAll = "services: missing, but %d of this file are in force and stay"
	fixLosesAll  = "write services: [] if they shall go"
)

// losesAll counts the services in force of the file, and of the other control
// plane that it names, where the next file speaks of none; else it gives 0. Half
// a file, or one that a tool has lost, must not take every client's endpoints
// away.
func (s *Server) losesAll(next *config.Config) int {
	if next.Services != nil || next.Source != nil {
		return 0
	}
	now := s.current.Load()
	n := len(now.Services)
	if now.Source != nil {
		n += len(now.Source.Services)
	}
	return n
}

// defaults are those of the file in force.
func (s *Server) defaults() config.Defaults { return s.current.Load().Defaults }
