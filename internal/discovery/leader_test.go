package discovery_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/store"
)

// elections stands in for an election engine: it takes everything.
type elections struct{ written, forced []discovery.SharedChange }

func (e *elections) Write(_ context.Context, changes []discovery.SharedChange) error {
	e.written = append(e.written, changes...)
	return nil
}

func (e *elections) Force(_ context.Context, changes []discovery.SharedChange) error {
	e.forced = append(e.forced, changes...)
	return nil
}

// fatal is what tests and properties have in common.
type fatal interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Helper()
}

func openReplica(t fatal, engine discovery.Shared) *discovery.Registry {
	t.Helper()
	r, err := discovery.Open(context.Background(), discovery.Options{
		Store: store.NewMemory(), Shared: engine, Logger: slog.New(slog.DiscardHandler),
		Validate: func(services []isobar.Service) error {
			for i := range services {
				if services[i].Name == "invalid" {
					return isobar.ErrInvalid
				}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// listed is a service in one locality, with endpoints that end in these numbers. Its
// settings tell whose it is.
func listed(name string, setting float64, endpoints ...int) isobar.Service {
	l := isobar.ServiceLocality{Locality: isobar.MustLocality("us/a"), MaxRate: setting}
	for _, e := range endpoints {
		l.Endpoints = append(l.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.0.0.%d:80", e)})
	}
	return isobar.Service{Name: name, Localities: []isobar.ServiceLocality{l}}
}

func provides(services ...isobar.Service) []discovery.Provided {
	return []discovery.Provided{{Owner: isobar.OwnerDNS, Listed: services}}
}

// inForce writes the services in force as NAME OWNER SETTING: ENDPOINTS.
func inForce(r *discovery.Registry) string {
	topology, _ := r.State()
	var out []string
	for i := range topology.Services {
		s := &topology.Services[i]
		text := fmt.Sprintf("%s %s %v:", s.Name, topology.Owners[s.Name], s.Localities[0].MaxRate)
		for _, e := range s.Localities[0].Endpoints {
			text += " " + strings.TrimSuffix(strings.TrimPrefix(e.Address, "10.0.0."), ":80")
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

func trusting(adds, endpoints, services bool) *discovery.Leading {
	return &discovery.Leading{Adds: adds, Complete: func(string, string) discovery.Complete {
		return discovery.Complete{Endpoints: endpoints, Services: services}
	}}
}

// TestProvidersOfAGroup plays a replica that follows, takes over and leads. The plan of
// the group has settings 1, this replica's own providers have settings 2.
func TestProvidersOfAGroup(t *testing.T) {
	engine := &elections{}
	r := openReplica(t, engine)
	step := func(what, want string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := inForce(r); got != want {
			t.Errorf("%s: in force are %q, want %q", what, got, want)
		}
	}
	follow := func(services ...isobar.Service) error {
		return r.Follow(discovery.Operated{}, &discovery.Configured{Providers: provides(services...)})
	}
	own := r.Provider(isobar.OwnerDNS)
	step("what its own providers list is not in force on a follower", "", r.SetProviders(provides(listed("cart", 2, 1, 9), listed("new", 2, 5))))
	step("the plan of the leader is", "cart dns 1: 1 2; gone dns 1: 3", follow(listed("cart", 1, 1, 2), listed("gone", 1, 3)))
	step("a change of its own providers still is not", "cart dns 1: 1 2; gone dns 1: 3", own.PutListed([]isobar.Service{listed("cart", 2, 1, 8)}))
	if err := own.PutListed([]isobar.Service{listed("invalid", 2, 1)}); err == nil {
		t.Error("a follower's provider is not told that its service would be refused")
	}
	step("a leader whose file is not the group's adds endpoints alone", "cart dns 1: 1 2 8; gone dns 1: 3", r.Lead(trusting(false, false, false)))
	step("with the group's file it adds services, and its settings count", "cart dns 2: 1 8 2; gone dns 1: 3; new dns 2: 5", r.Lead(trusting(true, false, false)))
	step("endpoints that are gone go once the provider is trusted", "cart dns 2: 1 8; gone dns 1: 3; new dns 2: 5", r.Lead(trusting(true, true, false)))
	step("they do not return when it is trusted no more", "cart dns 2: 1 8; gone dns 1: 3; new dns 2: 5", r.Lead(trusting(true, false, false)))
	if _, err := setHealth(r, "gone", "10.0.0.3:80", isobar.Draining); err != nil {
		t.Fatal(err)
	}
	step("services that are gone go last", "cart dns 2: 1 8; new dns 2: 5", r.Lead(trusting(true, true, true)))
	if last := engine.written[len(engine.written)-1]; !strings.HasPrefix(last.Key, "health/gone/") || last.Data != nil {
		t.Errorf("the mark of an endpoint that is gone stays in the engine: %+v", last)
	}
	step("from then on its providers decide", "cart dns 2: 7", own.ChangeListed([]isobar.Service{listed("cart", 2, 7)}, []string{"new"}))
	_, err := r.SetLeading(trusting(true, true, true), []isobar.Service{listed("cart", 3, 1)}, provides(), nil)
	step("a service that moves to the file", "cart  3: 1", err)
	step("a follower again", "cart dns 1: 4", follow(listed("cart", 1, 4)))
}

// TestProvidersOfAGroupLoseNothing asserts over random histories: a follower has what the
// plan has; a leader that trusts its providers has what they list; one that does not
// loses nothing that was in force.
func TestProvidersOfAGroupLoseNothing(t *testing.T) {
	services := func(t *rapid.T, setting float64, what string) []isobar.Service {
		var out []isobar.Service
		for _, name := range []string{"a", "b", "c"} {
			if endpoints := rapid.SliceOfNDistinct(rapid.IntRange(1, 6), 0, 4, rapid.ID[int]).Draw(t, what+" "+name); len(endpoints) > 0 {
				out = append(out, listed(name, setting, endpoints...))
			}
		}
		return out
	}
	rapid.Check(t, func(t *rapid.T) {
		r := openReplica(t, &elections{})
		var leading *discovery.Leading
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			before := r.List()
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				leading = nil
				plan := services(t, 1, "plan")
				if err := r.Follow(discovery.Operated{}, &discovery.Configured{Providers: provides(plan...)}); err != nil {
					t.Fatal(err)
				}
				wantNothingElse(t, r, plan)
				continue
			case 1:
				if err := r.SetProviders(provides(services(t, 2, "own")...)); err != nil {
					t.Fatal(err)
				}
			case 2:
				leading = trusting(rapid.Bool().Draw(t, "adds"), rapid.Bool().Draw(t, "endpoints"), rapid.Bool().Draw(t, "services"))
				if err := r.Lead(leading); err != nil {
					t.Fatal(err)
				}
			}
			var trust discovery.Complete
			if leading != nil {
				trust = leading.Complete("", "")
				trust.Services = trust.Services && leading.Adds
			}
			for i := range before {
				now, err := r.Get(before[i].Service.Name)
				if err != nil {
					if !trust.Services {
						t.Fatalf("%s is gone", before[i].Service.Name)
					}
					continue
				}
				for _, e := range before[i].Service.Localities[0].Endpoints {
					if _, _, found := now.Service.Endpoint(e.Address); !found && (!trust.Endpoints || !leading.Adds) {
						t.Fatalf("endpoint %s of %s is gone", e.Address, before[i].Service.Name)
					}
				}
			}
		}
	})
}

func wantNothingElse(t *rapid.T, r *discovery.Registry, want []isobar.Service) {
	t.Helper()
	got := r.List()
	if !slices.EqualFunc(got, want, func(o isobar.Object, s isobar.Service) bool {
		return o.Service.Name == s.Name && slices.Equal(o.Service.Localities[0].Endpoints, s.Localities[0].Endpoints)
	}) {
		t.Fatalf("a follower has %+v in force, the plan has %+v", got, want)
	}
}
