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
	if n := len(s.current.Load().Services); n > 0 && next.Services == nil && next.Source == nil {
		// Half a file, or one that a tool has lost, must not take every client's
		// endpoints away.
		return fmt.Errorf("%s:1:1: services: missing, but %d of this file are in force and stay; write services: [] if they shall go", s.opts.File, n)
	}
	for i := range warnings {
		s.log.Warn("configuration", "warning", warnings[i].String())
	}
	if err := s.configureSources(next); err != nil {
		return fmt.Errorf("%s: %w", s.opts.File, err)
	}
	s.current.Store(next)
	s.lrs.Changed()
	s.loop.Retime()
	if fixed := needsRestart(&s.cfg, next); len(fixed) > 0 {
		s.log.Warn("configuration reloaded; some settings take effect at the next start only", "settings", fixed)
	}
	return nil
}

// defaults are those of the file in force.
func (s *Server) defaults() config.Defaults { return s.current.Load().Defaults }
