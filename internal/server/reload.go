package server

import (
	"errors"
	"fmt"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/filewatch"
)

// reload puts a changed configuration file in force. An error keeps the old
// one; it is logged with its places by the watcher.
func (s *Server) reload(data []byte) error {
	s.held.mu.Lock()
	defer s.held.mu.Unlock()
	return s.take(data, false)
}

// take puts a content of the configuration file in force, or says why not. What
// a change removes is held where clients still need it, unless an operator has
// confirmed the change. s.held.mu is held.
func (s *Server) take(data []byte, confirmed bool) error {
	next, warnings, err := config.Decode(s.opts.File, data)
	if err != nil {
		return err
	}
	if err := s.lost(s.opts.File, &next.Live); err != nil {
		return err
	}
	digest := digestOf(data)
	var held map[string]*heldService
	if !confirmed {
		if held, err = s.hold(&next.Live, digest); err != nil {
			s.held.waiting, _ = errors.AsType[*heldChangeError](err)
			s.held.show()
			return err
		}
	}
	for i := range warnings {
		s.log.Warn("configuration", "warning", warnings[i].String())
	}
	outdated := s.outdatedDefaults(&next.Live)
	s.keepIdentities(next)
	before := s.policy()
	if err := s.configureSources(&next.Live, held, func() { s.current.Store(&next.Live) }); err != nil {
		return fmt.Errorf("%s: %w", s.opts.File, err)
	}
	s.reauthorize(before)
	s.keep(&next.Live, held, digest)
	if outdated != "" {
		s.log.Warn("configuration", "warning", outdated)
	}
	s.lrs.Refresh()
	s.loop.Retime()
	if fixed := needsRestart(&s.fixed, &next.Fixed); len(fixed) > 0 {
		s.log.Warn("configuration reloaded; some settings take effect at the next start only", "settings", fixed)
	}
	return nil
}

// Reload reads the configuration file and puts it in force; with a digest also
// what is held of the change that has it, once. Errors wrap isobar.ErrStale
// where the file is another one, and isobar.ErrInvalid where it is refused.
func (s *Server) Reload(confirm string) (*admin.HeldConfiguration, error) {
	if s.opts.File == "" {
		return nil, fmt.Errorf("%w: the server was started without a configuration file", isobar.ErrInvalid)
	}
	data, err := filewatch.Read(s.opts.File, config.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", isobar.ErrInvalid, err)
	}
	if err := s.reread(data, confirm); err != nil {
		return s.heldState(), err
	}
	s.Reread() // whoever watches the file takes note
	return s.heldState(), nil
}

func (s *Server) reread(data []byte, confirm string) error {
	s.held.mu.Lock()
	defer s.held.mu.Unlock()
	if confirm == "" && digestOf(data) == s.held.digest {
		return nil // it is in force
	}
	if confirm != "" {
		if digest := digestOf(data); confirm != digest {
			return fmt.Errorf("%w: the configuration file has the digest %s, not %s", isobar.ErrStale, digest, confirm)
		}
		if s.held.waiting == nil && len(s.held.services) == 0 {
			return fmt.Errorf("%w: nothing is held", isobar.ErrStale)
		}
	}
	err := s.take(data, confirm != "")
	if _, held := errors.AsType[*heldChangeError](err); err == nil || held {
		return err
	}
	return fmt.Errorf("%w: %w", isobar.ErrInvalid, err)
}

// keepIdentities leaves who may do what as it is where the next file asks for no
// certificates any more: that takes effect at the next start only, and until then
// everyone with a certificate could do everything.
func (s *Server) keepIdentities(next *config.Config) {
	if s.fixed.XDS.AsksCertificates() && !next.XDS.AsksCertificates() {
		now := s.current.Load()
		next.Identities, next.SubscribedOnly = now.Identities, now.SubscribedOnly
	}
}
