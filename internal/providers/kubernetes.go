package providers

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/table"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/plural"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// KubernetesConfig returns what a configuration says of a Kubernetes cluster; nil for none.
func KubernetesConfig(c *config.Config) *kubernetes.Config {
	out := kubernetesConfig(c.Discovery.Kubernetes)
	if out != nil && c.Replicas != nil && c.Replicas.Kubernetes != nil {
		out.Lease = c.Replicas.Kubernetes.Lease
	}
	return out
}

// kubernetesConfig translates; nil stays nil.
func kubernetesConfig(c *config.KubernetesDiscovery) *kubernetes.Config {
	if c == nil {
		return nil
	}
	out := &kubernetes.Config{
		Cluster:  kubernetes.Cluster{Kubeconfig: c.Kubeconfig, Context: c.Context, Namespaces: c.Namespaces, Selector: c.Selector, Policies: c.Policies},
		Places:   table.Places{Regions: c.Regions, Default: c.DefaultLocality},
		Template: c.Template, Ceiling: c.Ceiling, Services: make(map[string]isobar.Service, len(c.Services)),
	}
	for i := range c.Services {
		out.Services[c.Services[i].Name] = c.Services[i]
	}
	return out
}

// ClusterNames lists the services that the Kubernetes cluster of a configuration
// has, as far as it is known.
func (s *Set) ClusterNames(c *config.Live) []string {
	listed, unknown := s.kubernetes.Preview(kubernetesConfig(c.Discovery.Kubernetes))
	out := make([]string, 0, len(listed)+len(unknown))
	for i := range listed {
		out = append(out, listed[i].Name)
	}
	for i := range unknown {
		out = append(out, unknown[i].Name)
	}
	return out
}

// kubernetesGrace is for how long the Kubernetes API may be away without a word, once
// it has listed everything: its servers restart, too.
const kubernetesGrace = time.Minute

// kubernetesTroubles tells operators what is wrong with the Kubernetes cluster and
// what it lists.
func kubernetesTroubles(cluster *kubernetes.Provider) []admin.Attention {
	st, ok := cluster.Status()
	if !ok {
		return nil
	}
	var out []admin.Attention
	switch away := !st.Unconfirmed.IsZero() && time.Since(st.Unconfirmed) > kubernetesGrace; {
	case st.Failure != "" && len(st.Services) == 0:
		out = append(out, admin.NewAttention(admin.DiscoveryWaiting, "no services from the Kubernetes cluster yet: %s", st.Failure))
	case away || st.Failure != "" && !st.Listed:
		out = append(out, admin.NewAttention(admin.DiscoveryLost,
			"Isobar has failed to watch the Kubernetes cluster %s since %s, and keeps the endpoints listed last: %s",
			st.Server, st.Unconfirmed.UTC().Format(time.RFC3339), st.Failure))
	}
	for i := range st.Services {
		svc := &st.Services[i]
		if code, text := kubernetesTrouble(svc); text != "" {
			out = append(out, admin.NewAttention(code, "%s: %s", svc.Name, text).Of(svc.Name))
		}
		if svc.LeftOut > 0 {
			out = append(out, admin.NewAttention(admin.EndpointsLeftOut, "%s: %s left out: %s",
				svc.Name, plural.Count(svc.LeftOut, "endpoint of the Kubernetes cluster is", "endpoints of the Kubernetes cluster are"), svc.Reason).Of(svc.Name))
		}
	}
	for i := range st.Policies {
		if v := &st.Policies[i]; !v.InForce {
			out = append(out, admin.NewAttention(admin.PolicyNotInForce, "LoadBalancingPolicy %s is not in force for Service %s: %s", v.Policy, v.Service, v.Message))
		}
	}
	if st.StatusFailure != "" {
		out = append(out, admin.NewAttention(admin.PolicyNotInForce, "the statuses of LoadBalancingPolicies can't be written: %s", st.StatusFailure))
	}
	return out
}

// kubernetesTrouble says what is wrong with a service; empty where nothing is.
func kubernetesTrouble(svc *kubernetes.ServiceStatus) (admin.Code, string) {
	switch svc.State {
	case kubernetes.Waiting:
		return admin.DiscoveryWaiting, "its clients get no endpoints yet: Isobar has not listed the Kubernetes cluster"
	case kubernetes.Missing:
		return admin.DiscoveryWaiting, "its clients get no endpoints: the Kubernetes cluster has no such Service with this port, " +
			"or its labels do not fit the selector; correct its name under discovery.kubernetes.services, which is SERVICE.NAMESPACE:PORT"
	case kubernetes.Refused:
		return admin.DiscoveryRefused, "Isobar refuses the endpoints of the Kubernetes cluster: " + svc.Refused
	case kubernetes.Empty:
		if svc.Settings || svc.NotReady > 0 {
			return admin.DiscoveryHeld, fmt.Sprintf("the Kubernetes cluster lists no ready endpoint, and %d that are not ready", svc.NotReady)
		}
	case kubernetes.Current, kubernetes.Kept:
		if svc.Held > 0 {
			return admin.DiscoveryHeld, fmt.Sprintf(
				"%d endpoints, most of the service, stopped being ready at once; clients try them if no better endpoint is left", svc.Held)
		}
	}
	return "", ""
}

// fullest returns the locality of a service in a plan that uses most of its capacity, and
// which share of it.
func fullest(p *plan.Plan, service string) (where isobar.Locality, used float64, ok bool) {
	if p == nil {
		return where, 0, false
	}
	svc, found := p.Service(service)
	if !found || svc.Result == nil {
		return where, 0, false
	}
	for i := range svc.Result.Sites {
		site := &svc.Result.Sites[i]
		if site.Capacity <= 0 || i >= len(svc.Result.Load) {
			continue
		}
		if u := (svc.Result.Load[i] + site.Unmanaged) / site.Capacity; !ok || u > used {
			where, used, ok = site.Group.Locality, u, true
		}
	}
	return where, used, ok
}

// Place fills in the locality of a client that names the Kubernetes Node on which it
// runs. Without one it stays without a locality, as a client that names no Node.
func (s *Set) Place(ctx context.Context, peer string, n *rpc.Node) {
	at, _ := netip.ParseAddrPort(peer) // of a socket in the file system there is none
	where, err := s.kubernetes.Place(ctx, n.Machine, at.Addr())
	if err == nil {
		n.Locality = where
		return
	}
	if skipped, ok := s.unplaced.Allow(time.Now()); ok {
		s.log.Warn("a client has no locality: the Kubernetes Node that it names has no zone label",
			"node", n.ID, "peer", peer, "kubernetes_node", n.Machine, "error", err, "skipped_lines", skipped)
	}
}
