package server

import (
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/listen"
	"github.com/isobar-xds/isobar/internal/member"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/reload"
)

// A server that is alone has no group. The functions of this file say what is different in
// one that is a member of a group.

// shared is where the registry shares what operators write; nil for a server that is
// alone.
func (s *Server) shared() discovery.Shared {
	c := s.settings.Fixed.Replicas
	if c == nil {
		return nil
	}
	s.operated = member.NewOperated(c)
	return s.operated
}

// openOffers returns where a member of a group offers its configuration; nil for a server
// that is alone.
func (s *Server) openOffers() reload.Group {
	if s.settings.Fixed.Replicas == nil {
		return nil
	}
	s.offers = member.NewOffers(s.registry, s.providers)
	return s.offers
}

// joinGroup makes the server a member of its group, if the configuration names one.
func (s *Server) joinGroup() (err error) {
	c := s.settings.Fixed.Replicas
	if c == nil {
		if err := member.Alone(s.kept, s.registry); err != nil {
			s.log.Error("could not note that this server has left its group of replicas", "error", err)
		}
		return nil
	}
	s.member, err = member.Join(&member.Options{
		Replicas: c, Operated: s.operated, Offers: s.offers, Registry: s.registry, Providers: s.providers, State: s.kept,
		XDS: s.services.xds, LRS: s.services.lrs, HDS: s.services.hds, Checkers: checkers{s.services.hds},
		Clients: s.clients, Marks: s.sampler, Admin: func() *admin.Server { return s.admin }, Interval: s.settings.Interval,
		Tick:    func() time.Duration { return s.settings.Current().Tick },
		Version: s.opts.Version, Listener: s.listeners.Replicas,
		Identity:      identity.Options{Name: member.Listener, Log: s.log, Metrics: s.identity, Trigger: &s.trigger},
		ProviderGrace: s.opts.ProviderGrace, BalanceAfter: s.opts.BalanceAfter, Timing: s.opts.ReplicaTiming,
		Log: s.log, Registerer: s.metrics,
	})
	return err
}

// subscriptions tells who subscribes to what: of the clients of all replicas, where this server
// is one of a group.
func (s *Server) subscriptions(own listen.Subscriptions) listen.Subscriptions {
	if s.settings.Fixed.Replicas == nil {
		return own
	}
	return groupSubscriptions{own, s.currentPlan}
}

// groupSubscriptions are those of this replica's own clients, and those by which the leader
// planned: a client that reports load here may take its assignments from another replica.
type groupSubscriptions struct {
	own  listen.Subscriptions
	plan func() *plan.Plan
}

// Subscribed implements [listen.Subscriptions].
func (g groupSubscriptions) Subscribed(l isobar.Locality, service string) bool {
	if g.own.Subscribed(l, service) {
		return true
	}
	svc, ok := g.plan().Service(service)
	return ok && svc.Result.Source(l) != nil
}

// leading returns what gives an error unless this member leads its group; nil for a server that
// is alone.
func (s *Server) leading() func() error {
	if s.member == nil {
		return nil
	}
	return s.member.Leading
}

// writesStatuses reports whether this server writes the statuses of LoadBalancingPolicies:
// one that is alone, and the leader of a group.
func (s *Server) writesStatuses() bool { return s.member == nil || s.member.Leading() == nil }

// replicas is the group as operators see it; nil for a server that is alone.
func (s *Server) replicas() admin.Replicas {
	if s.member == nil {
		return nil
	}
	return s.member.Operators()
}

// tracker returns what tracks the connections of clients, which only a group needs.
func (s *Server) tracker() listen.Tracker {
	if s.member == nil {
		return nil
	}
	return s.member.Connections()
}

// shownCertificates are those of the listeners, that for peers included.
func (s *Server) shownCertificates() []listen.Shown {
	all := s.gate.Certificates()
	if s.member == nil {
		return all
	}
	if c := s.member.Certificates(); c != nil {
		all = append(all, listen.Shown{Certificates: c, Listener: member.Listener})
	}
	return all
}

// newLoop returns the loop of a server, or of a member of its group.
func (s *Server) newLoop(o *control.Options) (*control.Loop, error) {
	if s.member == nil {
		return control.New(*o)
	}
	s.member.Lead(o)
	loop, err := control.New(*o)
	if err == nil {
		s.member.Serve(loop, s.unserved)
	}
	return loop, err
}
