package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/discovery/dns"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
	"github.com/isobar-xds/isobar/internal/discovery/xdsclient"
	"github.com/isobar-xds/isobar/internal/store"
)

// providerPatience is how long clients wait at a start until providers have
// listed services of which nothing is known yet.
const providerPatience = 5 * time.Second

// providerNames are what operators call the providers of endpoints, by owner.
var providerNames = map[string]string{isobar.OwnerXDS: "the other control plane", isobar.OwnerDNS: "DNS", isobar.OwnerKubernetes: "the Kubernetes cluster"}

// openProviders opens what another control plane, DNS and a Kubernetes cluster listed
// last, and puts the configured services of all sources in force.
func (s *Server) openProviders(kept store.Store) error {
	var err error
	if s.upstream, err = xdsclient.Open(context.Background(), xdsclient.Options{
		Registry: s.registry.Provider(isobar.OwnerXDS), Store: kept, Dial: s.opts.DialSource, Log: s.log, Registerer: s.metrics,
	}); err != nil {
		return err
	}
	if s.names, err = dns.Open(context.Background(), dns.Options{
		Registry: s.registry.Provider(isobar.OwnerDNS), Store: kept, Dial: s.opts.DialDNS, Log: s.log, Registerer: s.metrics,
	}); err != nil {
		return err
	}
	if s.cluster, err = kubernetes.Open(context.Background(), kubernetes.Options{
		Registry: s.registry.Provider(isobar.OwnerKubernetes), Store: kept, Log: s.log, Registerer: s.metrics,
		MayWrite: s.writesStatuses, Fullest: s.fullest,
	}); err != nil {
		return err
	}
	s.held.register(s.metrics)
	s.held.mu.Lock()
	defer s.held.mu.Unlock()
	held := s.holdAtStart(kept)
	if err := s.configureSources(s.current.Load(), held, func() {}); err != nil {
		return err
	}
	s.keep(s.current.Load(), held, digestOf(s.opts.Data))
	return nil
}

// configureSources puts the services of a configuration in force: those of the
// file and those that providers list, in one change, with those that are held. It calls
// settle at the moment at which they come into force.
func (s *Server) configureSources(c *config.Live, held map[string]*heldService, settle func()) error {
	services := append(slices.Clone(c.Services), s.specsOf(held, c)...)
	if s.fixed.Replicas != nil {
		if err := s.offer(c, services); err != nil {
			return err
		}
		settle()
		return nil
	}
	return s.configureProviders(c, func(listed []discovery.Provided) error {
		_, err := s.registry.SetConfigured(services, listed, c.Network, settle)
		return err
	})
}

// configureProviders has the providers list what a configuration names, and hands what
// they know of it to put, whose error refuses the configuration.
func (s *Server) configureProviders(c *config.Live, put func(listed []discovery.Provided) error) error {
	return s.upstream.Configure(upstreamConfig(c.Discovery.XDS), func(listed, unknown []isobar.Service) error {
		xds := discovery.Provided{Owner: isobar.OwnerXDS, Listed: listed, Awaited: unknown}
		return s.names.Configure(dnsConfig(c.Discovery.DNS), func(listed, unknown []isobar.Service) error {
			names := discovery.Provided{Owner: isobar.OwnerDNS, Listed: listed, Awaited: unknown}
			return s.cluster.Configure(kubernetesConfig(c.Discovery.Kubernetes), func(listed, unknown []isobar.Service) error {
				cluster := discovery.Provided{Owner: isobar.OwnerKubernetes, Listed: listed, Awaited: unknown}
				return put(ownedOnce(xds, names, cluster))
			})
		})
	})
}

// ownedOnce returns each name to the first provider that has it: a Kubernetes cluster, the
// last one, may list a Service that the configuration names elsewhere.
func ownedOnce(providers ...discovery.Provided) []discovery.Provided {
	taken := map[string]string{}
	keep := func(owner string, list []isobar.Service) []isobar.Service {
		out := make([]isobar.Service, 0, len(list))
		for i := range list {
			if first, is := taken[list[i].Name]; !is || first == owner {
				taken[list[i].Name] = owner
				out = append(out, list[i])
			}
		}
		return out
	}
	for i := range providers {
		p := &providers[i]
		p.Listed, p.Awaited = keep(p.Owner, p.Listed), keep(p.Owner, p.Awaited)
	}
	return providers
}

// previewProviders returns what providers would list with another configuration.
func (s *Server) previewProviders(c *config.Live) []discovery.Provided {
	xds := discovery.Provided{Owner: isobar.OwnerXDS}
	xds.Listed, xds.Awaited = s.upstream.Preview(upstreamConfig(c.Discovery.XDS))
	names := discovery.Provided{Owner: isobar.OwnerDNS}
	names.Listed, names.Awaited = s.names.Preview(dnsConfig(c.Discovery.DNS))
	cluster := discovery.Provided{Owner: isobar.OwnerKubernetes}
	cluster.Listed, cluster.Awaited = s.cluster.Preview(kubernetesConfig(c.Discovery.Kubernetes))
	return ownedOnce(xds, names, cluster)
}

// waitForProviders waits until all have answered for what is not known, at most
// for providerPatience.
func (s *Server) waitForProviders(ctx context.Context) {
	began := time.Now()
	s.upstream.WaitAnswered(ctx, providerPatience)
	s.names.WaitAnswered(ctx, providerPatience-time.Since(began))
	s.cluster.WaitAnswered(ctx, providerPatience-time.Since(began))
}

var dnsFamilies = map[string]dns.Family{"auto": dns.Auto, "ipv4": dns.IPv4, "ipv6": dns.IPv6}

// dnsConfig translates; nil stays nil.
func dnsConfig(c *config.DNSDiscovery) *dns.Config {
	if c == nil {
		return nil
	}
	out := &dns.Config{
		Servers: c.Servers, MinTTL: c.MinTTL, Timeout: c.Timeout, EmptyHold: c.EmptyHold, Services: make([]dns.Service, len(c.Services)),
	}
	for i := range c.Services {
		svc := &c.Services[i]
		lookups := make([][]dns.Lookup, len(svc.Lookups))
		for j, names := range svc.Lookups {
			for _, l := range names {
				lookups[j] = append(lookups[j], dns.Lookup{Name: l.Name, SRV: l.SRV, Port: l.Port, Family: dnsFamilies[l.Family]})
			}
		}
		out.Services[i] = dns.Service{Settings: svc.Service, Lookups: lookups}
	}
	return out
}

// dnsGrace is for how long a name may get no answer without a word: servers
// restart, too.
const dnsGrace = time.Minute

// dnsTroubles tells operators which names are not resolved as they should be.
func (s *Server) dnsTroubles() []admin.Attention {
	st, ok := s.names.Status()
	if !ok {
		return nil
	}
	var out []admin.Attention
	for i := range st.Services {
		svc := &st.Services[i]
		if svc.Refused != "" {
			out = append(out, admin.NewAttention(admin.DiscoveryRefused, "%s: what DNS lists is refused: %s", svc.Name, svc.Refused).Of(svc.Name))
		}
		for j := range svc.Lookups {
			if code, text := lookupTrouble(svc, &svc.Lookups[j]); text != "" {
				out = append(out, admin.NewAttention(code, "%s: %s", svc.Name, text).Of(svc.Name).At(svc.Lookups[j].Locality))
			}
		}
	}
	return out
}

// lookupTrouble says what is wrong with a name; empty where nothing is.
func lookupTrouble(svc *dns.ServiceStatus, l *dns.LookupStatus) (admin.Code, string) {
	failure := ""
	if l.Failure != "" {
		failure = ": " + l.Failure
	}
	switch l.State {
	case dns.Waiting:
		return admin.DiscoveryWaiting, fmt.Sprintf("no endpoints in %s yet: %s is not resolved%s", l.Locality, l.Name, failure)
	case dns.Empty:
		return admin.DiscoveryHeld, fmt.Sprintf("no endpoints in %s: %s has no records", l.Locality, l.Name)
	case dns.Held:
		return admin.DiscoveryHeld, fmt.Sprintf("%s has no records any more; its %d endpoints in %s stay for now", l.Name, l.Endpoints, l.Locality)
	case dns.Kept:
		if !svc.Doubtful.IsZero() && time.Since(svc.Doubtful) > dnsGrace {
			return admin.DiscoveryLost, fmt.Sprintf("%s is not resolved since %s, so its %d endpoints in %s stay%s",
				l.Name, svc.Doubtful.UTC().Format(time.RFC3339), l.Endpoints, l.Locality, failure)
		}
	case dns.Current:
	}
	return "", ""
}
