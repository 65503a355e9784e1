package view

import (
	"slices"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc/mem"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// Resource is an encoded resource. Resources of equal content are often the
// same pointer, and always of the same Version.
type Resource = resource.Encoded

// Set is everything that clients can see of one plan. Immutable but for
// encoding what is first asked for; safe for concurrent use.
type Set struct {
	builder *Builder
	plan    Plan
	version string
	head    mem.Buffer
	names   []string
	static  map[string]*static
	seq     uint64
	// services is the seq of the first of the successive sets that have the same services.
	services uint64
	base     uint64              // seq of the set that changed was compared with; 0 = none
	changed  []string            // services that are new, gone, or have another cluster
	same     map[string]struct{} // services whose assignments are those of base, for all
	// lifetimes holds the services whose assignments clients forget unless they
	// hear of them again.
	lifetimes map[string]Lifetime
}

// Lifetime is how long clients keep an assignment without hearing of it; 0 = for
// ever.
type Lifetime struct {
	Stale time.Duration // of the endpoints: the assignment has to be sent again
	TTL   time.Duration // of the resource, with clients that know of it: a heartbeat is enough
}

// Lifetimes lists the services whose assignments do not live for ever. The map
// must not be changed.
func (s *Set) Lifetimes() map[string]Lifetime { return s.lifetimes }

// Version is the version of the plan.
func (s *Set) Version() string { return s.version }

// SameServices reports whether two sets have services of the same names. It may miss that they do.
func (s *Set) SameServices(other *Set) bool { return s.services == other.services }

// Names lists the services, sorted. The slice must not be changed.
func (s *Set) Names() []string { return s.names }

// Head is the encoded beginning of every response from this set.
func (s *Set) Head() mem.Buffer { return s.head }

// Unchanged reports whether the assignments of a service are those of the previous set, for all
// clients.
func (s *Set) Unchanged(service string) bool {
	_, same := s.same[service]
	return same
}

// Seq counts the sets: a later set has a higher number.
func (s *Set) Seq() uint64 { return s.seq }

// Has reports whether there is a service of that name.
func (s *Set) Has(service string) bool { return s.static[service] != nil }

// Serves reports whether there is a resource of that kind and name, or will be
// when the endpoints of its service are known.
func (s *Set) Serves(kind resource.Kind, name string) bool {
	return s.staticFor(kind, name) != nil || kind == resource.Listener && resource.IsServerListener(name)
}

// staticFor returns the service that the name of a resource stands for, nil for none.
// A service that has the name of an alias goes before the one that the alias means.
func (s *Set) staticFor(kind resource.Kind, name string) *static {
	service := resource.ServiceOf(kind, name)
	if found := s.static[service]; found != nil || !resource.HasAliases(kind) {
		return found
	}
	return s.static[resource.AliasOf(service)]
}

// ServiceOf returns the service that clients mean by the name of an assignment, "" for
// a name that can stand for none. It is the service of that name if there is one, else
// the one that the name is an alias of, which need not exist.
func (s *Set) ServiceOf(name string) string {
	service := resource.ServiceOf(resource.Endpoints, name)
	if alias := resource.AliasOf(service); alias != "" && s.static[service] == nil {
		return alias
	}
	return service
}

func (s *Set) staticOf(name string) *static {
	if s == nil {
		return nil
	}
	return s.static[name]
}

// static is what of a service does not depend on who asks: cluster, listener
// and routes. It lives as long as the service keeps its form.
type static struct {
	spec  isobar.Service                        // what they are made from, and no more
	slots [resource.Kinds][rpc.APIVersions]slot // under the service's own name
	grpc  [rpc.APIVersions]slot                 // the cluster as gRPC clients get it

	renamed renamed // under xdstp names
}

// fits reports whether the service still has this form.
func (s *static) fits(spec *isobar.Service, limit uint32) bool {
	settings := settingsOf(spec, limit)
	return s.spec.ORCA == spec.ORCA && s.spec.SameCluster(&settings) &&
		slices.EqualFunc(s.spec.Limits, spec.Limits, func(a, b isobar.Limit) bool { return a.Metric == b.Metric })
}

// settingsOf is what the cluster of a service is made from, with the protocol
// that may follow from its health checks, and the limit of requests in progress.
func settingsOf(spec *isobar.Service, limit uint32) isobar.ClusterSettings {
	out := spec.Limited(limit)
	out.Protocol, out.RequestTimeout = spec.EndpointProtocol(), 0 // clusters have no timeout of requests
	return out
}

func newStatic(spec *isobar.Service, limit uint32, old *static) *static {
	// The metrics of limits are passed on by clients.
	s := &static{spec: isobar.Service{Name: spec.Name, ORCA: spec.ORCA, Limits: spec.Limits, ClusterSettings: settingsOf(spec, limit)}}
	if old == nil {
		return s
	}
	for k := range s.slots {
		for f := range s.slots[k] {
			s.slots[k][f].fallback = old.slots[k][f].peek()
		}
	}
	for f := range s.grpc {
		s.grpc[f].fallback = old.grpc[f].peek()
	}
	s.renamed.succeed(&old.renamed)
	return s
}

func (s *static) get(b *Builder, as rpc.As, kind resource.Kind, name string) *Resource {
	api, grpc := as.API, as.GRPC && kind == resource.Cluster
	old := as.OldEnvoy && kind == resource.Cluster && s.spec.ORCA.On
	at := &s.slots[kind][api]
	switch {
	case name != s.spec.Name || as.Mark != 0 || old:
		at = s.renamed.slot(staticKey{kind, api, grpc, name, as.Mark, old}, &b.renamed)
	case grpc:
		at = &s.grpc[api]
	}
	return at.get(func() (*Resource, error) {
		m, err := resource.StaticOf(kind, &s.spec, name, grpc)
		if c, ok := m.(*clusterv3.Cluster); ok && old {
			resource.WithoutPolicies(c)
		}
		if err == nil && as.Mark != 0 {
			err = resource.Remark(m, &s.spec, name, as.Mark)
		}
		var r *Resource
		if err == nil {
			r, err = resource.EncodeAs(rpc.As{API: api}, name, kind, m, 0)
		}
		if err != nil {
			b.refuse(kind, Refusal{Service: s.spec.Name, Err: err})
			return nil, err
		}
		b.done(kind)
		return r, nil
	})
}

// maxServerListeners bounds how many listeners of gRPC servers are kept: servers
// that listen on all addresses share a few names, and any client may make some up.
// What is beyond is encoded at each request.
const maxServerListeners = 4096

// serverListeners holds the encoded listeners of gRPC servers. They depend on
// their names alone, and on no plan.
type serverListeners struct {
	mu   sync.Mutex
	kept map[string]*Resource
}

// get returns the listener of that name; nil when it is not that of a gRPC server.
// Servers that ask for one speak v3.
func (l *serverListeners) get(b *Builder, api rpc.APIVersion, name string) *Resource {
	said, ok := resource.ParseServerListener(name)
	if !ok || api != rpc.V3 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.kept[name]; r != nil {
		return r
	}
	m, err := resource.ServerListenerOf(name, said)
	var r *Resource
	if err == nil {
		r, err = resource.Encode(name, resource.Listener, m)
	}
	if err != nil {
		b.refuse(resource.Listener, Refusal{Service: name, Err: err})
		return nil
	}
	b.done(resource.Listener)
	if l.kept == nil {
		l.kept = map[string]*Resource{}
	}
	if len(l.kept) < maxServerListeners {
		l.kept[name] = r
	}
	return r
}
