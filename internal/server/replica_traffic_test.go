package server_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/loadgen"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestTrafficBetweenReplicas asserts that the leader sends of each plan only what changed,
// while clients report load that varies.
func TestTrafficBetweenReplicas(t *testing.T) {
	const services, clients = 50, 50
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1]}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	var list strings.Builder
	for i := range services {
		fmt.Fprintf(&list, "- name: service-%d\n  localities:\n", i)
		for z, zone := range []string{"us/a", "us/b", "us/c"} {
			fmt.Fprintf(&list, "  - {locality: %s, max_rate: 1000, endpoints: [\"10.%d.%d.1:80\", \"10.%d.%d.2:80\", \"10.%d.%d.3:80\"]}\n", zone, z, i, z, i, z, i)
		}
	}
	a := startMember(t, replicaConfig(t, "a", listen[0], election, list.String(), peers...))
	testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	b := startMember(t, replicaConfig(t, "b", listen[1], election, list.String(), peers...))
	testhelp.Eventually(t, "b follows", func() bool { return b.group().Removes })
	load := func(d time.Duration) {
		if _, err := loadgen.Run(t.Context(), loadgen.Options{
			Target: a.server.XDSAddress(), Clients: clients, Subscribe: 10, Duration: d,
			RateOf: func(client int, _ string, now time.Time) float64 { return float64(10 + (client+int(now.Unix()))%20) },
		}); err != nil {
			t.Fatal(err)
		}
	}
	load(3 * time.Second)
	testhelp.Eventually(t, "b has the leader's plan", func() bool { return b.server.Plan().Version == a.server.Plan().Version })
	sent, published := metric(t, a, "isobar_replica_plan_bytes_sent_total"), metric(t, a, "isobar_replica_plans_published_total")
	load(6 * time.Second)
	sent, published = metric(t, a, "isobar_replica_plan_bytes_sent_total")-sent, metric(t, a, "isobar_replica_plans_published_total")-published
	size := gauge(t, a, "isobar_replica_plan_bytes")
	if published < 3 {
		t.Fatalf("%v plans", published)
	}
	part := sent / (published * size)
	if part > 0.2 {
		t.Errorf("of plans of %.0f bytes, %.0f%% were sent", size, 100*part)
	}
	t.Logf("%v plans of %.0f bytes: %.0f bytes each were sent, %.0f%%", published, size, sent/published, 100*part)
}

// gauge reads a gauge of a replica.
func gauge(t *testing.T, m *member, name string) float64 {
	t.Helper()
	families, err := m.server.Metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
