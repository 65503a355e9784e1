package server

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

// settings are what the configuration file sets. All parts of a server share them.
type settings struct {
	fixed config.Fixed // as started
	live  atomic.Pointer[config.Live]
}

// current returns the settings that a reload changes, as they are now.
func (s *settings) current() *config.Live { return s.live.Load() }

// interval returns how often clients and checkers report.
func (s *settings) interval() time.Duration { return s.current().ReportInterval }

// defaults returns those of the file in force.
func (s *settings) defaults() config.Defaults { return s.current().Defaults }

// policy returns the rules in force. They follow the configuration file; whether
// clients show certificates is decided at the start.
func (s *settings) policy() identity.Policy {
	if !s.fixed.XDS.AsksCertificates() {
		return nil
	}
	return s.current().Identities
}

// keepIdentities leaves who may do what as it is where the next file asks for no
// certificates any more: that takes effect at the next start only, and until then
// everyone with a certificate could do everything.
func (s *settings) keepIdentities(next *config.Config) {
	if s.fixed.XDS.AsksCertificates() && !next.XDS.AsksCertificates() {
		now := s.current()
		next.Identities, next.SubscribedOnly = now.Identities, now.SubscribedOnly
	}
}

// is2017 reports whether the configuration knows a client as one of 2017.
func (s *settings) is2017(n rpc.Node) bool {
	return slices.ContainsFunc(s.fixed.XDS.Clients2017, func(pattern string) bool {
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
