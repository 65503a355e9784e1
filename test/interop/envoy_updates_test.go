package interop

import (
	"fmt"
	"testing"
	"time"

	vocabulary "github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// Envoy acts on an update in which one thing is different and nothing else, for
// everything that Isobar changes in an assignment; drops are in
// TestEnvoyFollowsDrops.
func TestEnvoyFollowsSmallUpdates(t *testing.T) {
	t.Parallel()
	for _, version := range envoyVersions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			u := &updates{server: startAssignmentServer(t), hosts: []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}}
			u.proxy = startEnvoy(t, version, assignmentBootstrap(u.server.address, localityWeighted, "checkout"))
			u.send(t, u.assignment())
			if err := u.AwaitReady(t.Context(), patience); err != nil {
				t.Fatal(err)
			}
			t.Run("health", u.health)
			t.Run("policy", u.policy)
			t.Run("endpoint_stale_after", u.stale)
		})
	}
}

// updates is an Envoy without traffic that gets one assignment after the other.
type updates struct {
	*proxy

	server *assignmentServer
	hosts  []string
}

func (u *updates) assignment() *vocabulary.Assignment {
	return &vocabulary.Assignment{Service: "checkout", Priorities: [][]vocabulary.LocalityWeight{
		{group("a", 6000, u.hosts[0], u.hosts[1]), group("b", 4000, u.hosts[2])},
	}}
}

// send waits until the Envoy has accepted an assignment.
func (u *updates) send(t *testing.T, a *vocabulary.Assignment) {
	t.Helper()
	e, err := resource.EncodeAssignment(rpc.As{}, a.Service, a)
	if err != nil {
		t.Fatal(err)
	}
	if text := u.server.answer(t, u.server.setEncoded(t, e)); text != "" {
		t.Fatalf("rejected: %s", text)
	}
}

// stats are those of the cluster.
func (u *updates) stats(t *testing.T) map[string]int64 {
	t.Helper()
	stats, err := u.Stats(t.Context(), "^cluster.checkout.(membership_.*|update_no_rebuild)$")
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

// health changes the health of one endpoint from each status to each other.
func (u *updates) health(t *testing.T) {
	statuses := []vocabulary.HealthStatus{
		vocabulary.Unknown, vocabulary.Healthy, vocabulary.Unhealthy, vocabulary.Draining, vocabulary.Timeout, vocabulary.Degraded,
	}
	for _, from := range statuses {
		for _, to := range statuses {
			a := u.assignment()
			for _, h := range []vocabulary.HealthStatus{from, to} {
				a.Priorities[0][0].Endpoints[0].Health = h
				u.send(t, a)
			}
			stats, want := u.stats(t), "2 healthy"
			switch to {
			case vocabulary.Unknown, vocabulary.Healthy:
				want = "3 healthy"
			case vocabulary.Draining:
				want += ", 1 excluded"
			case vocabulary.Degraded:
				want += ", 1 degraded"
			default:
			}
			got := fmt.Sprintf("%d healthy", stats["cluster.checkout.membership_healthy"])
			for _, name := range []string{"excluded", "degraded"} {
				if n := stats["cluster.checkout.membership_"+name]; n > 0 {
					got += fmt.Sprintf(", %d %s", n, name)
				}
			}
			if got != want {
				t.Errorf("from %s to %s: %s, want %s", from, to, got, want)
			}
		}
	}
}

// policy changes each setting of the assignment alone.
func (u *updates) policy(t *testing.T) {
	ignored := func() int64 { return u.stats(t)["cluster.checkout.update_no_rebuild"] }
	for name, change := range map[string]func(*vocabulary.Assignment){
		"overprovisioning_factor":  func(a *vocabulary.Assignment) { a.OverprovisioningFactor = 200 },
		"weighted_priority_health": func(a *vocabulary.Assignment) { a.WeightedPriorityHealth = true },
		"locality weight":          func(a *vocabulary.Assignment) { a.Priorities[0][1].Weight++ },
		"endpoint weight":          func(a *vocabulary.Assignment) { a.Priorities[0][0].Endpoints[1].Weight++ },
		"priority": func(a *vocabulary.Assignment) {
			a.Priorities = append(a.Priorities, a.Priorities[0][1:])
			a.Priorities[0] = a.Priorities[0][:1:1]
		},
	} {
		u.send(t, u.assignment())
		a := u.assignment()
		change(a)
		for _, next := range []*vocabulary.Assignment{a, u.assignment()} {
			before := ignored()
			u.send(t, next)
			if ignored() != before {
				t.Errorf("a change of the %s alone is ignored", name)
			}
		}
	}
}

// stale sets endpoint_stale_after alone, and takes it away.
func (u *updates) stale(t *testing.T) {
	a := u.assignment()
	u.send(t, a)
	a.EndpointStaleAfter = 300 * time.Millisecond
	u.send(t, a)
	await(t, "end of the endpoints", func() error {
		if n := u.stats(t)["cluster.checkout.membership_total"]; n != 0 {
			return fmt.Errorf("%d hosts", n)
		}
		return nil
	})
	a.EndpointStaleAfter = 2 * time.Second
	u.send(t, a)
	a.EndpointStaleAfter = 0
	u.send(t, a)
	time.Sleep(2500 * time.Millisecond) //nolint:forbidigo // nothing may happen in this time
	if n := u.stats(t)["cluster.checkout.membership_total"]; n != 3 {
		t.Errorf("%d hosts, want 3: endpoint_stale_after was taken away", n)
	}
}
