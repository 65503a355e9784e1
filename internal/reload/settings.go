package reload

import (
	"path"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// Settings are what the configuration file sets. All parts of a server share them.
type Settings struct {
	Fixed config.Fixed // as started
	live  atomic.Pointer[config.Live]
}

// NewSettings returns the settings of the configuration that a server starts with.
func NewSettings(start *config.Config) *Settings {
	s := &Settings{Fixed: start.Fixed}
	s.live.Store(&start.Live)
	return s
}

// Current returns the settings that a reload changes, as they are now.
func (s *Settings) Current() *config.Live { return s.live.Load() }

// Interval returns how often clients and checkers report.
func (s *Settings) Interval() time.Duration { return s.Current().ReportInterval }

// defaults returns those of the file in force.
func (s *Settings) defaults() config.Defaults { return s.Current().Defaults }

// Policy returns the rules in force. They follow the configuration file; whether
// clients show certificates is decided at the start.
func (s *Settings) Policy() identity.Policy {
	if !s.Fixed.XDS.AsksCertificates() {
		return nil
	}
	return s.Current().Identities
}

// keepIdentities leaves who may do what as it is where the next file asks for no
// certificates any more: that takes effect at the next start only, and until then
// everyone with a certificate could do everything.
func (s *Settings) keepIdentities(next *config.Config) {
	if s.Fixed.XDS.AsksCertificates() && !next.XDS.AsksCertificates() {
		now := s.Current()
		next.Identities, next.SubscribedOnly = now.Identities, now.SubscribedOnly
	}
}

// Is2017 reports whether the configuration knows a client as one of 2017.
func (s *Settings) Is2017(n rpc.Node) bool {
	return slices.ContainsFunc(s.Fixed.XDS.Clients2017, func(pattern string) bool {
		return slices.ContainsFunc([]string{n.ID, n.Cluster}, func(name string) bool {
			ok, err := path.Match(pattern, name)
			return ok && err == nil
		})
	})
}

// needsRestart lists the settings that a reload can't change.
func needsRestart(old, next *config.Fixed) []string {
	var out []string
	add := func(name string, changed bool) {
		if changed {
			out = append(out, name)
		}
	}
	add("xds", !reflect.DeepEqual(old.XDS, next.XDS))
	add("admin", !reflect.DeepEqual(old.Admin, next.Admin))
	add("state_dir", old.StateDir != next.StateDir)
	add("replicas", !reflect.DeepEqual(old.Replicas, next.Replicas))
	add("log", old.Log != next.Log)
	add("trace", !reflect.DeepEqual(old.Trace, next.Trace))
	return out
}
