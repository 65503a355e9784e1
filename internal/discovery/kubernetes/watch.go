package kubernetes

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/isobar-xds/isobar/internal/discovery/keep"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/table"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/v1alpha1"
)

// session watches one cluster, until the configuration names another. All but
// what does not change is guarded by the provider's lock.
type session struct {
	cluster Cluster
	table   *table.Table
	feeds   []*feedState // empty until the credentials could be read
	nodes   *feedState   // that of Nodes
	host    string
	failure string // why the credentials can't be read; empty = they can

	clients       *clients // nil until the credentials could be read
	policies      map[table.Key]*policyObject
	statusFailure string // why statuses of policies can't be written; empty = they can
}

// feedState is how things stand with one watch.
type feedState struct {
	resource  string // as in RBAC, with its group
	namespace string // empty = all
	optional  bool   // without the permission it can be done without

	synced    bool
	objects   int
	failing   time.Time // since when requests fail; zero = they do not
	failure   string
	forbidden bool
}

// without reports whether the watch is not permitted, and not needed.
func (f *feedState) without() bool { return f.optional && f.forbidden }

// synced reports whether everything was listed once. s may have no feeds yet.
func (s *session) synced() bool {
	for _, f := range s.feeds {
		if !f.synced && !f.without() {
			return false
		}
	}
	return len(s.feeds) > 0
}

// lost tells since when something that is needed can't be watched, and why.
func (s *session) lost() (since time.Time, failure string) {
	for _, f := range s.feeds {
		if f.failing.IsZero() || f.without() {
			continue
		}
		if since.IsZero() || f.failing.Before(since) {
			since, failure = f.failing, f.failure
		}
	}
	return since, failure
}

// run watches until ctx ends.
func (p *Provider) run(ctx context.Context, s *session) {
	ctx = klog.NewContext(ctx, logr.Discard()) // what fails is told here, once
	c := p.credentials(ctx, s)
	if c == nil {
		return
	}
	var reflectors []*cache.Reflector
	add := func(f *feedState, kind runtime.Object, source func(went func(error)) *cache.ListWatch, store cache.ReflectorStore) {
		s.feeds = append(s.feeds, f)
		went := func(err error) { p.went(s, f, err) }
		logger := logr.Discard()
		reflectors = append(reflectors, cache.NewReflectorWithOptions(source(went), kind, store, cache.ReflectorOptions{
			Name: f.resource, Logger: &logger, Backoff: backoff(),
		}))
	}
	namespaces := s.cluster.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	selector, err := labels.Parse(s.cluster.Selector)
	if err != nil {
		selector = labels.Nothing() // the configuration has checked it
	}
	asked := s.cluster.Selector
	if s.cluster.Policies {
		asked = "" // Services with a policy are served whatever their labels are
	}
	p.mu.Lock()
	s.host, s.failure, s.clients = c.host, "", c
	for _, namespace := range namespaces {
		f := &feedState{resource: "services", namespace: namespace}
		add(f, &corev1.Service{}, func(went func(error)) *cache.ListWatch {
			return c.source(corev1.SchemeGroupVersion, "services", namespace, asked, func() runtime.Object { return &corev1.ServiceList{} }, went)
		}, &feed[*corev1.Service, table.Service]{
			provider: p, session: s, state: f, convert: serviceOf(selector), set: s.table.SetService,
			remove:  func(o *corev1.Service) { s.table.DeleteService(table.Key{Namespace: o.Namespace, Name: o.Name}) },
			replace: func(list []table.Service) { s.table.ReplaceServices(namespace, list) },
		})
		f = &feedState{resource: "endpointslices.discovery.k8s.io", namespace: namespace}
		add(f, &discoveryv1.EndpointSlice{}, func(went func(error)) *cache.ListWatch {
			return c.source(discoveryv1.SchemeGroupVersion, "endpointslices", namespace, "", func() runtime.Object { return &discoveryv1.EndpointSliceList{} }, went)
		}, &feed[*discoveryv1.EndpointSlice, table.Slice]{
			provider: p, session: s, state: f, convert: sliceOf, set: s.table.SetSlice,
			remove: func(o *discoveryv1.EndpointSlice) {
				s.table.DeleteSlice(table.Key{Namespace: o.Namespace, Name: o.Name})
			},
			replace: func(list []table.Slice) { s.table.ReplaceSlices(namespace, list) },
		})
		if s.cluster.Policies {
			f = &feedState{resource: policyResource, namespace: namespace}
			add(f, &v1alpha1.LoadBalancingPolicy{}, func(went func(error)) *cache.ListWatch {
				return c.source(v1alpha1.GroupVersion, v1alpha1.Policies, namespace, "", func() runtime.Object { return &v1alpha1.LoadBalancingPolicyList{} }, went)
			}, s.policyFeed(p, f, namespace))
		}
	}
	f := &feedState{resource: "nodes", optional: true}
	s.nodes = f
	add(f, &metav1.PartialObjectMetadata{}, c.nodeSource, &feed[*metav1.PartialObjectMetadata, table.Node]{
		provider: p, session: s, state: f, convert: nodeOf,
		set: func(n table.Node) {
			s.table.SetNode(n)
			p.nodesChanged()
		},
		remove: func(o *metav1.PartialObjectMetadata) { s.table.DeleteNode(o.Name) },
		replace: func(list []table.Node) {
			s.table.ReplaceNodes(list)
			p.nodesChanged()
		},
	})
	p.mu.Unlock()
	var running sync.WaitGroup
	for _, r := range reflectors {
		running.Go(func() { r.RunWithContext(ctx) })
	}
	running.Wait()
}

// policyFeed takes policies with their statuses.
func (s *session) policyFeed(p *Provider, f *feedState, namespace string) cache.ReflectorStore {
	return &feed[*v1alpha1.LoadBalancingPolicy, policyOfCluster]{
		provider: p, session: s, state: f,
		convert: func(o *v1alpha1.LoadBalancingPolicy) (policyOfCluster, bool) {
			converted, ok := policyOf(o)
			return policyOfCluster{converted, o}, ok
		},
		set: func(o policyOfCluster) {
			s.setPolicy(o.object)
			s.table.SetPolicy(o.policy)
		},
		remove: func(o *v1alpha1.LoadBalancingPolicy) {
			k := table.Key{Namespace: o.Namespace, Name: o.Name}
			delete(s.policies, k)
			s.table.DeletePolicy(k)
		},
		replace: func(list []policyOfCluster) {
			for k := range s.policies {
				if namespace == "" || k.Namespace == namespace {
					delete(s.policies, k)
				}
			}
			policies := make([]table.Policy, len(list))
			for i := range list {
				s.setPolicy(list[i].object)
				policies[i] = list[i].policy
			}
			s.table.ReplacePolicies(namespace, policies)
		},
	}
}

// policyOfCluster is a policy with its object.
type policyOfCluster struct {
	policy table.Policy
	object *v1alpha1.LoadBalancingPolicy
}

// backoff is how long a watch that fails waits: half a second at first, and at most 5
// to 7.5 s. The default of client-go goes up to a minute, for thousands of Nodes that
// watch; the few watches of Isobar may come back earlier.
func backoff() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Cap: 5 * time.Second, Steps: 10, Factor: 2, Jitter: 0.5}
}

// credentials reads them, again and again until they are there; nil once ctx ends.
func (p *Provider) credentials(ctx context.Context, s *session) *clients {
	for failures := 1; ; failures++ {
		c, err := connect(&s.cluster)
		if err == nil {
			return c
		}
		p.mu.Lock()
		s.failure = keep.Short(err.Error())
		p.show()
		p.mu.Unlock()
		p.warn("the Kubernetes API can't be used; the endpoints listed last stay", "error", s.failure)
		timer := time.NewTimer(keep.Backoff(failures))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// went notes how a request of a watch went.
func (p *Provider) went(s *session, f *feedState, err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		err = nil // the watch began too far back, and restarts with a list
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	was := f.failure
	if err == nil {
		f.failing, f.failure, f.forbidden = time.Time{}, "", false
		if was != "" {
			p.opts.Log.Info("the Kubernetes API answers again", "resource", f.resource, "namespace", f.namespace)
		}
	} else {
		p.metrics.failures.WithLabelValues(f.resource).Inc()
		if f.failing.IsZero() {
			f.failing = time.Now()
		}
		f.forbidden = apierrors.IsForbidden(err)
		f.failure = keep.Short(explain(f, err))
		if was == "" {
			p.warn("the Kubernetes API does not list; the endpoints listed last stay", "resource", f.resource, "namespace", f.namespace, "error", f.failure)
		}
	}
	if p.session == s {
		p.show()
		if f.forbidden {
			keep.Signal(p.dirty) // Nodes that may not be read are not waited for
			p.nodesChanged()
		}
	}
}

// explain names the rule that is missing.
func explain(f *feedState, err error) string {
	switch {
	case apierrors.IsForbidden(err):
		where := "a ClusterRole"
		if f.namespace != "" {
			where = "a Role in namespace " + f.namespace
		}
		return fmt.Sprintf("not permitted: give the service account list and watch of %s, by %s: %v", f.resource, where, err)
	case apierrors.IsNotFound(err) && f.resource == policyResource:
		return "the cluster does not have the custom resource LoadBalancingPolicy: apply deploy/kubernetes/crds, or remove policies from discovery.kubernetes"
	case apierrors.IsUnauthorized(err):
		return fmt.Sprintf("the API server does not accept the credentials: %v", err)
	default:
		return err.Error()
	}
}

// feed puts what one watch lists into the table. It implements cache.ReflectorStore.
type feed[O runtime.Object, T any] struct {
	provider *Provider
	session  *session
	state    *feedState
	convert  func(O) (T, bool) // false = it is as if the object were not there
	set      func(T)
	remove   func(O)
	replace  func([]T)
}

// Add takes an object that is new.
func (f *feed[O, T]) Add(obj any) error { return f.put(obj, 1) }

// Update takes an object that has changed.
func (f *feed[O, T]) Update(obj any) error { return f.put(obj, 0) }

func (f *feed[O, T]) put(obj any, more int) error {
	o, ok := obj.(O)
	if !ok {
		return fmt.Errorf("unexpected %T", obj)
	}
	value, used := f.convert(o)
	return f.change(func() {
		f.state.objects += more
		if used {
			f.set(value)
		} else {
			f.remove(o)
		}
	})
}

// Delete takes an object that is gone.
func (f *feed[O, T]) Delete(obj any) error {
	o, ok := obj.(O)
	if !ok {
		return fmt.Errorf("unexpected %T", obj)
	}
	return f.change(func() {
		f.state.objects--
		f.remove(o)
	})
}

// Replace takes all objects that there are.
func (f *feed[O, T]) Replace(list []any, _ string) error {
	values := make([]T, 0, len(list))
	for _, obj := range list {
		o, ok := obj.(O)
		if !ok {
			return fmt.Errorf("unexpected %T", obj)
		}
		if value, used := f.convert(o); used {
			values = append(values, value)
		}
	}
	return f.change(func() {
		f.state.synced, f.state.objects = true, len(list)
		f.replace(values)
	})
}

// Resync has nothing to do: what is in the table is in force.
func (f *feed[O, T]) Resync() error { return nil }

// change edits the table of the session, unless another has begun since.
func (f *feed[O, T]) change(edit func()) error {
	p := f.provider
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == f.session {
		edit()
		keep.Signal(p.dirty)
	}
	return nil
}

// Run watches until ctx ends, saves what is known and returns nil.
func (p *Provider) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		p.sessions(ctx)
		return nil
	})
	g.Go(func() error {
		p.follow(ctx)
		return nil
	})
	g.Go(func() error {
		p.writeStatuses(ctx)
		return nil
	})
	g.Go(func() error {
		p.saver.Run(ctx, p.metrics.saveErrors)
		return nil
	})
	return g.Wait()
}

// sessions watches what is configured, and something else once that changes.
func (p *Provider) sessions(ctx context.Context) {
	for ctx.Err() == nil {
		watching, stop := context.WithCancel(ctx)
		var running sync.WaitGroup
		p.mu.Lock()
		select {
		case <-p.changed: // that is what begins here
		default:
		}
		if p.cfg != nil {
			s := &session{cluster: p.cfg.Cluster, table: table.New(p.cfg.Places), policies: map[table.Key]*policyObject{}}
			p.session = s
			running.Go(func() { p.run(watching, s) })
		}
		p.mu.Unlock()
		select {
		case <-p.changed:
		case <-ctx.Done():
		}
		stop()
		running.Wait()
	}
}

// follow hands over what has changed.
func (p *Provider) follow(ctx context.Context) {
	timer := time.NewTimer(holdOff)
	defer timer.Stop()
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	for {
		select {
		case <-p.dirty:
		case <-retry.C:
			p.retry()
			continue
		case <-ctx.Done():
			return
		}
		timer.Reset(holdOff)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		p.take()
	}
}
