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
	if err := s.lost(s.opts.File, next); err != nil {
		return err
	}
	for i := range warnings {
		s.log.Warn("configuration", "warning", warnings[i].String())
	}
	if err := s.configureSources(next); err != nil {
		return fmt.Errorf("%s: %w", s.opts.File, err)
	}
	if text := s.outdatedDefaults(next); text != "" {
		s.log.Warn("configuration", "warning", text)
	}
	s.keepIdentities(next)
	s.enforce(next)
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
