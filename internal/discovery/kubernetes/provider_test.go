package kubernetes_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/apitest"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/table"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

var (
	node    = apitest.Node
	service = apitest.Service
	slice   = apitest.Slice
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a provider with its registry and a cluster of two zones.
type world struct {
	t        *testing.T
	api      *apitest.Server
	registry *discovery.Registry
	provider *kubernetes.Provider
	cfg      kubernetes.Config
	store    *store.Memory
	metrics  *prometheus.Registry

	mu       sync.Mutex
	refusals int
	refuse   string // services whose names begin so are refused; empty = none
}

func newWorld(t *testing.T, edit func(*kubernetes.Config)) *world {
	t.Helper()
	w := &world{t: t, api: apitest.New(t), store: store.NewMemory()}
	w.api.Put(node("n1", "east", "a"), node("n2", "east", "b"), service("shop", "checkout"), slice("shop", "checkout-1", "a", "10.1.0.1", "10.1.0.2"))
	w.cfg = kubernetes.Config{
		Cluster:  kubernetes.Cluster{Kubeconfig: w.api.Kubeconfig()},
		Template: isobar.Service{Mode: isobar.ModeObserve}, Ceiling: 0.7,
	}
	if edit != nil {
		edit(&w.cfg)
	}
	return w
}

// run opens the provider and calls during while it runs.
func (w *world) run(during func()) {
	w.t.Helper()
	var err error
	w.metrics = prometheus.NewRegistry()
	w.registry, err = discovery.Open(w.t.Context(), discovery.Options{Store: w.store, Validate: func(services []isobar.Service) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range services {
			if w.refuse != "" && strings.HasPrefix(services[i].Name, w.refuse) {
				w.refusals++
				return fmt.Errorf("%s breaks a rule", w.refuse)
			}
		}
		return nil
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.provider, err = kubernetes.Open(w.t.Context(), kubernetes.Options{Registry: w.registry.Provider(isobar.OwnerKubernetes), Store: w.store, Registerer: w.metrics})
	if err != nil {
		w.t.Fatal(err)
	}
	w.configure(&w.cfg)
	ctx, stop := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.provider.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	}()
	during()
}

// configure gives the provider a configuration, and DNS some services.
func (w *world) configure(cfg *kubernetes.Config, dns ...isobar.Service) {
	w.t.Helper()
	err := w.provider.Configure(cfg, func(listed, unknown []isobar.Service) error {
		others := func(s isobar.Service) bool {
			return slices.ContainsFunc(dns, func(d isobar.Service) bool { return d.Name == s.Name })
		}
		provided := []discovery.Provided{
			{Owner: isobar.OwnerDNS, Listed: dns},
			{Owner: isobar.OwnerKubernetes, Listed: slices.DeleteFunc(listed, others), Awaited: slices.DeleteFunc(unknown, others)},
		}
		_, err := w.registry.SetConfigured(nil, provided, nil, nil)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) setRefused(names string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = names
}

// inForce renders what is in force, a service a line.
func (w *world) inForce() string {
	var lines []string
	for _, o := range w.registry.List() {
		line := o.Service.Name
		for _, l := range o.Service.Localities {
			line += " " + l.Locality.String() + ":"
			for _, e := range l.Endpoints {
				line += " " + strings.TrimSuffix(e.Address, ":8080")
				if e.Health != isobar.Healthy {
					line += "=" + e.Health.String()
				}
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// wants waits until this is in force.
func (w *world) wants(lines ...string) {
	w.t.Helper()
	want := strings.Join(lines, "\n")
	if !eventually(func() bool { return w.inForce() == want }) {
		w.t.Fatalf("in force is\n%s\nwant\n%s\nstatus %+v", w.inForce(), want, w.status())
	}
}

// eventually waits for a condition, beyond the pauses of watches that fail.
func eventually(holds func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			return false
		}
	}
	return true
}

func (w *world) status() kubernetes.Status {
	s, _ := w.provider.Status()
	return s
}

func (w *world) until(what string, is func(kubernetes.Status) bool) {
	w.t.Helper()
	if !eventually(func() bool { return is(w.status()) }) {
		w.t.Fatalf("%s: never; status %+v", what, w.status())
	}
}

func stateOf(s kubernetes.Status, name string) kubernetes.State {
	i := slices.IndexFunc(s.Services, func(s kubernetes.ServiceStatus) bool { return s.Name == name })
	if i < 0 {
		return ""
	}
	return s.Services[i].State
}

const both = "checkout.shop:80 east/a: 10.1.0.1 10.1.0.2"

func TestServicesAreWatched(t *testing.T) {
	for name, old := range map[string]bool{"by a streaming list": false, "by a list and a watch": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.api.NoStreams(old)
			w.run(func() {
				w.wants(both)
				o, err := w.registry.Get("checkout.shop:80")
				if err != nil || o.Owner != isobar.OwnerKubernetes || o.Service.Mode != isobar.ModeObserve || o.Service.Localities[0].Ceiling != 0.7 {
					t.Errorf("%+v, %v", o, err)
				}
				w.api.Put(slice("shop", "checkout-2", "b", "10.1.0.3", "10.1.0.4 draining", "10.1.0.5 unready"))
				w.wants(both + " east/b: 10.1.0.3 10.1.0.4=draining")
				w.api.Remove(slice("shop", "checkout-1", "a"))
				w.wants("checkout.shop:80 east/b: 10.1.0.3 10.1.0.4=draining")
				w.api.Put(service("shop", "cart"), slice("shop", "cart-1", "a"))
				w.wants("cart.shop:80", "checkout.shop:80 east/b: 10.1.0.3 10.1.0.4=draining")
				w.api.Remove(service("shop", "checkout"))
				w.wants("cart.shop:80")
				if s := w.status(); !s.Listed || !s.Unconfirmed.IsZero() || len(s.Watches) != 3 || stateOf(s, "cart.shop:80") != kubernetes.Empty {
					t.Errorf("status %+v", s)
				}
				if age := w.provider.Outdated(); len(age) != 0 {
					t.Errorf("%+v", age)
				}
			})
			if lists := w.api.Count("list endpointslices"); (lists > 0) != old {
				t.Errorf("%d lists", lists)
			}
		})
	}
}

// TestAPIGone: while the API server is away everything is held and ages; when it
// is back, what it no longer lists is removed.
func TestAPIGone(t *testing.T) {
	w := newWorld(t, nil)
	w.run(func() {
		w.wants(both)
		w.api.Down()
		w.until("the loss is seen", func(s kubernetes.Status) bool { return !s.Unconfirmed.IsZero() })
		s := w.status()
		if stateOf(s, "checkout.shop:80") != kubernetes.Kept || s.Failure == "" {
			t.Errorf("status %+v", s)
		}
		if age := w.provider.Outdated(); len(age) != 1 || age[0].Service != "checkout.shop:80" || time.Since(age[0].Since) > time.Minute {
			t.Errorf("%+v", age)
		}
		w.wants(both)
		w.api.Put(slice("shop", "checkout-1", "a", "10.1.0.2"))
		w.api.Compact() // the watch begins with a list
		w.api.Up()
		w.wants("checkout.shop:80 east/a: 10.1.0.2")
		w.until("it is watched again", func(s kubernetes.Status) bool { return s.Unconfirmed.IsZero() })
	})
}

// TestRestart: what was listed last is in force at once, without the API; what the
// first list does not have is removed.
func TestRestart(t *testing.T) {
	w := newWorld(t, nil)
	w.api.Put(service("shop", "cart"), slice("shop", "cart-1", "a", "10.1.0.9"))
	w.run(func() { w.wants("cart.shop:80 east/a: 10.1.0.9", both) })
	w.api.Down()
	w.api.Remove(service("shop", "cart"), slice("shop", "cart-1", "a"))
	w.run(func() {
		w.wants("cart.shop:80 east/a: 10.1.0.9", both)
		if s := w.status(); s.Listed || stateOf(s, "checkout.shop:80") != kubernetes.Kept {
			t.Errorf("status %+v", s)
		}
		if age := w.provider.Outdated(); len(age) != 2 {
			t.Errorf("%+v", age)
		}
		w.api.Up()
		w.wants(both)
	})
}

// TestSlicesThatComeLate: while the slices are not listed, Services that are do not
// lose the endpoints known from before.
func TestSlicesThatComeLate(t *testing.T) {
	w := newWorld(t, nil)
	w.run(func() { w.wants(both) })
	w.api.Forbid("endpointslices", true)
	w.run(func() {
		w.until("the Services are listed, the slices fail", func(s kubernetes.Status) bool {
			return slices.ContainsFunc(s.Watches, func(w kubernetes.WatchStatus) bool {
				return w.Resource == "services" && w.State == kubernetes.WatchListed
			}) &&
				strings.Contains(s.Failure, "endpointslices")
		})
		<-time.After(500 * time.Millisecond) // longer than changes are gathered
		w.wants(both)
		if s := w.status(); s.Listed || stateOf(s, "checkout.shop:80") != kubernetes.Kept {
			t.Errorf("status %+v", s)
		}
		w.api.Forbid("endpointslices", false)
		w.until("all is listed", func(s kubernetes.Status) bool { return s.Listed })
		w.wants(both)
	})
}

func TestWatchesThatEnd(t *testing.T) {
	for name, old := range map[string]bool{"with streaming lists": false, "with lists": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.api.NoStreams(old)
			w.run(func() {
				w.wants(both)
				w.api.CutWatches()
				w.api.Put(slice("shop", "checkout-1", "a", "10.1.0.1"))
				w.wants("checkout.shop:80 east/a: 10.1.0.1")
				// Too old: the answer is 410 Gone, and all is listed again.
				w.api.Lose(slice("shop", "checkout-1", "a"))
				w.wants("checkout.shop:80")
			})
		})
	}
}

func TestSelection(t *testing.T) {
	w := newWorld(t, func(c *kubernetes.Config) { c.Namespaces, c.Selector = []string{"shop", "web"}, "balance=yes" })
	labelled := func(s *corev1.Service) { s.Labels = map[string]string{"balance": "yes"} }
	w.api.Put(
		service("web", "front", labelled), slice("web", "front-1", "b", "10.1.0.7"),
		service("other", "hidden", labelled), slice("other", "hidden-1", "a", "10.1.0.8"),
		service("web", "external", labelled, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }),
		service("web", "udp", labelled, func(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[1:] }),
	)
	w.run(func() {
		w.wants("front.web:80 east/b: 10.1.0.7")
		w.api.Put(service("shop", "checkout", labelled))
		w.wants(both, "front.web:80 east/b: 10.1.0.7")
		next := w.cfg
		next.Namespaces = []string{"shop"}
		w.configure(&next)
		w.wants(both) // at once: front is selected no longer
		w.until("it is listed anew", func(s kubernetes.Status) bool { return s.Listed })
		w.wants(both)
		w.configure(nil)
		w.wants("")
	})
}

func TestSettings(t *testing.T) {
	w := newWorld(t, func(c *kubernetes.Config) {
		c.Services = map[string]isobar.Service{
			"checkout.shop:80": {Name: "checkout.shop:80", Mode: isobar.ModeFull, Localities: []isobar.ServiceLocality{{Locality: isobar.MustLocality("east/a"), MaxRate: 50}}},
			"absent.shop:80":   {Name: "absent.shop:80"},
		}
	})
	w.run(func() {
		w.wants(both)
		o, err := w.registry.Get("checkout.shop:80")
		if err != nil || o.Service.Mode != isobar.ModeFull || o.Service.Localities[0].MaxRate != 50 {
			t.Errorf("%+v, %v", o, err)
		}
		if s := w.status(); stateOf(s, "absent.shop:80") != kubernetes.Missing {
			t.Errorf("status %+v", s)
		}
		next := w.cfg
		next.Services = nil
		next.Places = table.Places{Default: isobar.MustLocality("south")}
		w.configure(&next)
		if o, _ := w.registry.Get("checkout.shop:80"); o.Service.Mode != isobar.ModeObserve {
			t.Errorf("%+v", o)
		}
		w.api.Put(slice("shop", "checkout-2", "z", "10.1.0.3"))
		w.wants(both + " south/z: 10.1.0.3")
	})
}

// TestPermissions: what is not permitted is named; Nodes can be done without.
func TestPermissions(t *testing.T) {
	w := newWorld(t, func(c *kubernetes.Config) {
		c.Namespaces, c.Places.Regions = []string{"shop"}, map[string]string{"a": "west"}
	})
	w.api.Forbid("nodes", true)
	w.api.Forbid("endpointslices", true)
	w.run(func() {
		w.until("the failure is told", func(s kubernetes.Status) bool {
			return strings.Contains(s.Failure, "give the service account list and watch of endpointslices.discovery.k8s.io, by a Role in namespace shop")
		})
		if got := w.inForce(); got != "" {
			t.Errorf("in force is %s", got)
		}
		w.api.Forbid("endpointslices", false)
		w.wants("checkout.shop:80 west/a: 10.1.0.1 10.1.0.2")
		s := w.status()
		i := slices.IndexFunc(s.Watches, func(w kubernetes.WatchStatus) bool { return w.Resource == "nodes" })
		if !strings.Contains(s.Watches[i].Failure, "a ClusterRole") || !s.Unconfirmed.IsZero() {
			t.Errorf("status %+v", s)
		}
	})
}

func TestRefusedService(t *testing.T) {
	w := newWorld(t, nil)
	w.refuse = "cart.shop:80"
	w.api.Put(service("shop", "cart"), slice("shop", "cart-1", "a", "10.1.0.9"), service("shop", "zoo"), slice("shop", "zoo-1", "a", "10.1.0.8"))
	w.run(func() {
		w.wants(both, "zoo.shop:80 east/a: 10.1.0.8")
		if s := w.status(); stateOf(s, "cart.shop:80") != kubernetes.Refused {
			t.Errorf("status %+v", s)
		}
		w.configure(&w.cfg) // one that is refused does not keep a configuration out
		w.setRefused("")
		w.api.Put(slice("shop", "cart-1", "a", "10.1.0.9", "10.1.0.10"))
		w.wants("cart.shop:80 east/a: 10.1.0.9 10.1.0.10", both, "zoo.shop:80 east/a: 10.1.0.8")
	})
}

// TestManyRefusedServices: what the registry refuses of very many costs a bounded
// number of tries, and is tried again.
func TestManyRefusedServices(t *testing.T) {
	const many = 500
	w := newWorld(t, nil)
	w.refuse = "bad"
	want := []string{both}
	for i := range many {
		name := fmt.Sprintf("bad%03d", i)
		w.api.Put(service("shop", name), slice("shop", name+"-1", "a", fmt.Sprintf("10.2.%d.%d", i/250, i%250)))
		want = append(want, fmt.Sprintf("%s.shop:80 east/a: 10.2.%d.%d", name, i/250, i%250))
	}
	slices.Sort(want)
	w.run(func() {
		w.until("all are listed", func(s kubernetes.Status) bool { return s.Listed && len(s.Services) == many+1 })
		w.mu.Lock()
		refusals := w.refusals
		w.mu.Unlock()
		if refusals > 70 {
			t.Errorf("handed over %d times", refusals)
		}
		w.setRefused("")
		w.provider.Retry()
		w.wants(want...)
	})
}

// TestNamesOfOthers: a Service whose name belongs to another provider is refused, and
// once that one has it no longer, it goes on with its endpoints until the cluster's
// are in force.
func TestNamesOfOthers(t *testing.T) {
	named := isobar.Service{Name: "checkout.shop:80", Localities: []isobar.ServiceLocality{
		{Locality: isobar.MustLocality("west/z"), Endpoints: []isobar.Endpoint{{Address: "10.9.0.1:8080"}}},
	}}
	w := newWorld(t, nil)
	w.run(func() {
		w.wants(both)
		w.configure(&w.cfg, named)
		w.wants("checkout.shop:80 west/z: 10.9.0.1=unknown")
		w.until("it is refused", func(s kubernetes.Status) bool {
			return stateOf(s, "checkout.shop:80") == kubernetes.Refused && strings.Contains(s.Services[0].Refused, "discovery.dns")
		})
		listed, unknown := w.provider.Preview(&w.cfg)
		if len(unknown) != 0 || len(listed) != 1 || listed[0].Localities[0].Endpoints[0].Address != "10.9.0.1:8080" {
			t.Errorf("it would begin with %+v, %+v", listed, unknown)
		}
		w.configure(&w.cfg)
		w.wants(both)
		if s := w.status(); stateOf(s, "checkout.shop:80") != kubernetes.Current {
			t.Errorf("status %+v", s)
		}
	})
}

func TestCredentials(t *testing.T) {
	w := newWorld(t, func(c *kubernetes.Config) { c.Kubeconfig = "/does/not/exist" })
	w.run(func() {
		w.until("the failure is told", func(s kubernetes.Status) bool {
			return strings.Contains(s.Failure, "reading kubeconfig /does/not/exist")
		})
	})
}

// TestMetrics: numbers are those of the table.
func TestMetrics(t *testing.T) {
	w := newWorld(t, nil)
	w.api.Put(slice("shop", "checkout-2", "b", "10.1.0.3", "10.1.0.4 draining", "10.1.0.5 unready"), slice("shop", "checkout-3", "nowhere", "10.1.0.6"))
	w.run(func() {
		w.wants(both + " east/b: 10.1.0.3 10.1.0.4=draining")
		for condition, want := range map[string]float64{"ready": 3, "draining": 1, "not_ready": 1, "left_out": 1} {
			if got := testhelp.Metric(t, w.metrics, "isobar_discovery_kubernetes_endpoints", condition); got != want {
				t.Errorf("%v endpoints are %s, want %v", got, condition, want)
			}
		}
		if got := testhelp.Metric(t, w.metrics, "isobar_discovery_kubernetes_services", "current"); got != 1 {
			t.Errorf("%v services are current", got)
		}
		for state, want := range map[string]float64{"listed": 3, "waiting": 0, "failing": 0, "without": 0} {
			if got := testhelp.Metric(t, w.metrics, "isobar_discovery_kubernetes_watches", state); got != want {
				t.Errorf("%v watches are %s, want %v", got, state, want)
			}
		}
	})
}
