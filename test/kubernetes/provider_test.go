package kubernetes_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
	"github.com/isobar-xds/isobar/internal/store"
)

// isobarOf is the part of Isobar that reads a cluster, with its registry.
type isobarOf struct {
	t        *testing.T
	registry *discovery.Registry
	provider *kubernetes.Provider
}

// watch runs the provider until the test ends.
func watch(t *testing.T, in kubernetes.Cluster) *isobarOf {
	t.Helper()
	kept := store.NewMemory()
	registry, err := discovery.Open(t.Context(), discovery.Options{Store: kept, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := kubernetes.Open(t.Context(), kubernetes.Options{Registry: registry.Provider(isobar.OwnerKubernetes), Store: kept})
	if err != nil {
		t.Fatal(err)
	}
	cfg := &kubernetes.Config{Cluster: in, Template: isobar.Service{Mode: isobar.ModeObserve}}
	if err := p.Configure(cfg, func(listed, unknown []isobar.Service) error {
		_, err := registry.SetConfigured(nil, []discovery.Provided{{Owner: isobar.OwnerKubernetes, Listed: listed, Awaited: unknown}}, nil, nil)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &isobarOf{t: t, registry: registry, provider: p}
}

// endpoints returns those of a service with their health, by address without port.
func (i *isobarOf) endpoints(service string) map[string]isobar.HealthStatus {
	o, err := i.registry.Get(service)
	if err != nil {
		return nil
	}
	out := map[string]isobar.HealthStatus{}
	for _, l := range o.Service.Localities {
		for _, e := range l.Endpoints {
			host, _, _ := strings.Cut(e.Address, ":")
			out[host] = e.Health
		}
	}
	return out
}

// zones counts the healthy endpoints of a service by locality.
func (i *isobarOf) zones(service string) map[string]int {
	o, err := i.registry.Get(service)
	if err != nil {
		return nil
	}
	out := map[string]int{}
	for _, l := range o.Service.Localities {
		for _, e := range l.Endpoints {
			if e.Health == isobar.Healthy {
				out[l.Locality.String()]++
			}
		}
	}
	return out
}

func (i *isobarOf) status() kubernetes.Status {
	s, _ := i.provider.Status()
	return s
}

func (i *isobarOf) watchOf(resource string) kubernetes.WatchStatus {
	s := i.status()
	at := slices.IndexFunc(s.Watches, func(w kubernetes.WatchStatus) bool { return w.Resource == resource })
	if at < 0 {
		return kubernetes.WatchStatus{}
	}
	return s.Watches[at]
}

// until waits for a state of the provider.
func (i *isobarOf) until(limit time.Duration, what string, is func(kubernetes.Status) bool) {
	i.t.Helper()
	defer func() {
		if i.t.Failed() {
			i.t.Logf("status %+v", i.status())
		}
	}()
	eventually(i.t, limit, what, func() bool { return is(i.status()) })
}

// quantile of durations, which it sorts.
func quantile(d []time.Duration, q float64) time.Duration {
	slices.Sort(d)
	return d[int(q*float64(len(d)-1))]
}
