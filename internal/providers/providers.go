// Package providers joins the providers of endpoints that a configuration names: another
// control plane, DNS and a Kubernetes cluster. It translates what the configuration says of
// them, gives each service to one of them, and tells operators what is wrong with them.
package providers

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/discovery/dns"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
	"github.com/isobar-xds/isobar/internal/discovery/xdsclient"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/store"
)

// patience is how long clients wait at a start until providers have listed services of
// which nothing is known yet.
const patience = 5 * time.Second

// Name returns what operators call the provider of an owner's endpoints.
func Name(owner string) string { return called[owner] }

var called = map[string]string{isobar.OwnerXDS: "the other control plane", isobar.OwnerDNS: "DNS", isobar.OwnerKubernetes: "the Kubernetes cluster"}

// A Set lists the endpoints of services that are not in the configuration file: another
// control plane, DNS and a Kubernetes cluster. A provider that is not configured lists nothing.
type Set struct {
	xds        *xdsclient.Client
	dns        *dns.Provider
	kubernetes *kubernetes.Provider

	log      *slog.Logger
	unplaced rpc.LogLimit // of what clients on unknown Nodes can trigger
}

// Options are what all providers share, and what some of them need beside.
type Options struct {
	Registry   *discovery.Registry
	Store      store.Store // for what they listed last
	Log        *slog.Logger
	Registerer prometheus.Registerer
	// Dial and DialDNS open connections; nil = the system's.
	Dial    func(ctx context.Context, address string) (net.Conn, error)
	DialDNS func(ctx context.Context, network, address string) (net.Conn, error)
	// MayWrite reports whether this server writes the statuses of LoadBalancingPolicies.
	MayWrite func() bool
	// Plan returns the plan in force; nil before the first.
	Plan func() *plan.Plan
}

// Open opens what another control plane, DNS and a Kubernetes cluster listed last.
func Open(o *Options) (*Set, error) {
	s := &Set{log: o.Log}
	var err error
	if s.xds, err = xdsclient.Open(context.Background(), xdsclient.Options{
		Registry: o.Registry.Provider(isobar.OwnerXDS), Store: o.Store, Dial: o.Dial, Log: o.Log, Registerer: o.Registerer,
	}); err != nil {
		return nil, err
	}
	if s.dns, err = dns.Open(context.Background(), dns.Options{
		Registry: o.Registry.Provider(isobar.OwnerDNS), Store: o.Store, Dial: o.DialDNS, Log: o.Log, Registerer: o.Registerer,
	}); err != nil {
		return nil, err
	}
	if s.kubernetes, err = kubernetes.Open(context.Background(), kubernetes.Options{
		Registry: o.Registry.Provider(isobar.OwnerKubernetes), Store: o.Store, Log: o.Log, Registerer: o.Registerer,
		MayWrite: o.MayWrite, Fullest: func(service string) (isobar.Locality, float64, bool) { return fullest(o.Plan(), service) },
	}); err != nil {
		return nil, err
	}
	return s, nil
}

// Follow has the providers list what is configured, until ctx ends.
func (s *Set) Follow(ctx context.Context, start func(func() error)) {
	start(func() error { return s.xds.Run(ctx) })
	start(func() error { return s.dns.Run(ctx) })
	start(func() error { return s.kubernetes.Run(ctx) })
}

// Configure has the providers list what a configuration names, and hands what
// they know of it to put, whose error refuses the configuration.
func (s *Set) Configure(c *config.Live, put func(listed []discovery.Provided) error) error {
	return s.xds.Configure(xdsConfig(c.Discovery.XDS), func(listed, unknown []isobar.Service) error {
		xds := discovery.Provided{Owner: isobar.OwnerXDS, Listed: listed, Awaited: unknown}
		return s.dns.Configure(dnsConfig(c.Discovery.DNS), func(listed, unknown []isobar.Service) error {
			names := discovery.Provided{Owner: isobar.OwnerDNS, Listed: listed, Awaited: unknown}
			return s.kubernetes.Configure(kubernetesConfig(c.Discovery.Kubernetes), func(listed, unknown []isobar.Service) error {
				cluster := discovery.Provided{Owner: isobar.OwnerKubernetes, Listed: listed, Awaited: unknown}
				return put(ownedOnce(xds, names, cluster))
			})
		})
	})
}

// ownedOnce returns each name to the first provider that has it: a Kubernetes cluster, the
// last one, may list a Service that the configuration names elsewhere.
func ownedOnce(provided ...discovery.Provided) []discovery.Provided {
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
	for i := range provided {
		p := &provided[i]
		p.Listed, p.Awaited = keep(p.Owner, p.Listed), keep(p.Owner, p.Awaited)
	}
	return provided
}

// Preview returns what providers would list with another configuration.
func (s *Set) Preview(c *config.Live) []discovery.Provided {
	xds := discovery.Provided{Owner: isobar.OwnerXDS}
	xds.Listed, xds.Awaited = s.xds.Preview(xdsConfig(c.Discovery.XDS))
	names := discovery.Provided{Owner: isobar.OwnerDNS}
	names.Listed, names.Awaited = s.dns.Preview(dnsConfig(c.Discovery.DNS))
	cluster := discovery.Provided{Owner: isobar.OwnerKubernetes}
	cluster.Listed, cluster.Awaited = s.kubernetes.Preview(kubernetesConfig(c.Discovery.Kubernetes))
	return ownedOnce(xds, names, cluster)
}

// Wait waits until all have answered for what is not known, at most
// for patience.
func (s *Set) Wait(ctx context.Context) {
	began := time.Now()
	s.xds.WaitAnswered(ctx, patience)
	s.dns.WaitAnswered(ctx, patience-time.Since(began))
	s.kubernetes.WaitAnswered(ctx, patience-time.Since(began))
}

// Complete reports, by owner, whether the provider has listed everything.
func (s *Set) Complete() map[string]bool {
	return map[string]bool{
		isobar.OwnerXDS: s.xds.Complete(), isobar.OwnerDNS: s.dns.Complete(), isobar.OwnerKubernetes: s.kubernetes.Complete(),
	}
}

// Outdated lists the services whose endpoints their provider does not confirm.
func (s *Set) Outdated(now time.Time) []plan.InputAge {
	old := slices.Concat(s.xds.Outdated(), s.dns.Outdated(), s.kubernetes.Outdated())
	out := make([]plan.InputAge, len(old))
	for i, o := range old {
		age := max(0, now.Sub(o.Since))
		out[i] = plan.InputAge{Service: o.Service, Kind: plan.InputTopology, Age: load.Age{Some: age, Most: age}}
	}
	return out
}

// ControlPlane implements [admin.Providers].
func (s *Set) ControlPlane() (any, bool) { return s.xds.Status() }

// DNS implements [admin.Providers].
func (s *Set) DNS() (any, bool) { return s.dns.Status() }

// Kubernetes implements [admin.Providers].
func (s *Set) Kubernetes() (any, bool) { return s.kubernetes.Status() }

// Attention tells operators what is wrong with what providers list.
func (s *Set) Attention() []admin.Attention {
	return slices.Concat(xdsTroubles(s.xds), dnsTroubles(s.dns), kubernetesTroubles(s.kubernetes))
}
