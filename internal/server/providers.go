package server

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
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/store"
)

// providerPatience is how long clients wait at a start until providers have
// listed services of which nothing is known yet.
const providerPatience = 5 * time.Second

// providerNames are what operators call the providers of endpoints, by owner.
var providerNames = map[string]string{isobar.OwnerXDS: "the other control plane", isobar.OwnerDNS: "DNS", isobar.OwnerKubernetes: "the Kubernetes cluster"}

// providers list the endpoints of services that are not in the configuration file: another
// control plane, DNS and a Kubernetes cluster. Those that are not configured list nothing.
type providers struct {
	upstream *xdsclient.Client
	names    *dns.Provider
	cluster  *kubernetes.Provider

	log      *slog.Logger
	unplaced rpc.LogLimit // of what clients on unknown Nodes can trigger
}

// providerOptions are what providers share, and what some of them need beside.
type providerOptions struct {
	registry *discovery.Registry
	kept     store.Store
	metrics  prometheus.Registerer
	log      *slog.Logger
	// dial and dialDNS open connections; nil = the system's.
	dial    func(ctx context.Context, address string) (net.Conn, error)
	dialDNS func(ctx context.Context, network, address string) (net.Conn, error)
	// mayWrite reports whether this server writes the statuses of LoadBalancingPolicies.
	mayWrite func() bool
	plan     func() *plan.Plan
}

// openProviders opens what another control plane, DNS and a Kubernetes cluster listed last.
func openProviders(o *providerOptions) (*providers, error) {
	p := &providers{log: o.log}
	var err error
	if p.upstream, err = xdsclient.Open(context.Background(), xdsclient.Options{
		Registry: o.registry.Provider(isobar.OwnerXDS), Store: o.kept, Dial: o.dial, Log: o.log, Registerer: o.metrics,
	}); err != nil {
		return nil, err
	}
	if p.names, err = dns.Open(context.Background(), dns.Options{
		Registry: o.registry.Provider(isobar.OwnerDNS), Store: o.kept, Dial: o.dialDNS, Log: o.log, Registerer: o.metrics,
	}); err != nil {
		return nil, err
	}
	if p.cluster, err = kubernetes.Open(context.Background(), kubernetes.Options{
		Registry: o.registry.Provider(isobar.OwnerKubernetes), Store: o.kept, Log: o.log, Registerer: o.metrics,
		MayWrite: o.mayWrite, Fullest: func(service string) (isobar.Locality, float64, bool) { return fullest(o.plan(), service) },
	}); err != nil {
		return nil, err
	}
	return p, nil
}

// follow has the providers list what is configured, until ctx ends.
func (p *providers) follow(ctx context.Context, start func(func() error)) {
	start(func() error { return p.upstream.Run(ctx) })
	start(func() error { return p.names.Run(ctx) })
	start(func() error { return p.cluster.Run(ctx) })
}

// configure has the providers list what a configuration names, and hands what
// they know of it to put, whose error refuses the configuration.
func (p *providers) configure(c *config.Live, put func(listed []discovery.Provided) error) error {
	return p.upstream.Configure(upstreamConfig(c.Discovery.XDS), func(listed, unknown []isobar.Service) error {
		xds := discovery.Provided{Owner: isobar.OwnerXDS, Listed: listed, Awaited: unknown}
		return p.names.Configure(dnsConfig(c.Discovery.DNS), func(listed, unknown []isobar.Service) error {
			names := discovery.Provided{Owner: isobar.OwnerDNS, Listed: listed, Awaited: unknown}
			return p.cluster.Configure(kubernetesConfig(c.Discovery.Kubernetes), func(listed, unknown []isobar.Service) error {
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

// preview returns what providers would list with another configuration.
func (p *providers) preview(c *config.Live) []discovery.Provided {
	xds := discovery.Provided{Owner: isobar.OwnerXDS}
	xds.Listed, xds.Awaited = p.upstream.Preview(upstreamConfig(c.Discovery.XDS))
	names := discovery.Provided{Owner: isobar.OwnerDNS}
	names.Listed, names.Awaited = p.names.Preview(dnsConfig(c.Discovery.DNS))
	cluster := discovery.Provided{Owner: isobar.OwnerKubernetes}
	cluster.Listed, cluster.Awaited = p.cluster.Preview(kubernetesConfig(c.Discovery.Kubernetes))
	return ownedOnce(xds, names, cluster)
}

// wait waits until all have answered for what is not known, at most
// for providerPatience.
func (p *providers) wait(ctx context.Context) {
	began := time.Now()
	p.upstream.WaitAnswered(ctx, providerPatience)
	p.names.WaitAnswered(ctx, providerPatience-time.Since(began))
	p.cluster.WaitAnswered(ctx, providerPatience-time.Since(began))
}

// outdated lists the services whose endpoints their provider does not confirm.
func (p *providers) outdated(now time.Time) []plan.InputAge {
	old := slices.Concat(p.upstream.Outdated(), p.names.Outdated(), p.cluster.Outdated())
	out := make([]plan.InputAge, len(old))
	for i, o := range old {
		age := max(0, now.Sub(o.Since))
		out[i] = plan.InputAge{Service: o.Service, Kind: plan.InputTopology, Age: plan.Age{Some: age, Most: age}}
	}
	return out
}

// ControlPlane implements [admin.Providers].
func (p *providers) ControlPlane() (any, bool) { return p.upstream.Status() }

// DNS implements [admin.Providers].
func (p *providers) DNS() (any, bool) { return p.names.Status() }

// Kubernetes implements [admin.Providers].
func (p *providers) Kubernetes() (any, bool) { return p.cluster.Status() }

// troubles tells operators what is wrong with what providers list.
func (p *providers) troubles() []admin.Attention {
	return slices.Concat(upstreamTroubles(p.upstream), dnsTroubles(p.names), kubernetesTroubles(p.cluster))
}
