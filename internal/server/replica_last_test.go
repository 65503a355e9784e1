package server_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// drops opens a stream of a client in us/a that accepts all answers. It returns a function that
// waits for the end of the stream and reports whether the last answer has drops.
func (m *member) drops() (last func() bool) {
	m.t.Helper()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(m.dial()).StreamAggregatedResources(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	r := &discoveryv3.DiscoveryRequest{Node: nodeIn("drops", "us/a"), TypeUrl: assignmentURL, ResourceNames: []string{"checkout"}}
	if err := s.Send(r); err != nil {
		m.t.Fatal(err)
	}
	ended, answered, drops := make(chan struct{}), make(chan struct{}), false
	go func() {
		defer close(ended)
		for first := true; ; first = false {
			answer, err := s.Recv()
			if err != nil {
				return
			}
			var a endpointv3.ClusterLoadAssignment
			for _, resource := range answer.GetResources() {
				if err := resource.UnmarshalTo(&a); err != nil {
					m.t.Error(err)
				}
			}
			if drops = len(a.GetPolicy().GetDropOverloads()) > 0; first {
				close(answered)
			}
			r = &discoveryv3.DiscoveryRequest{TypeUrl: assignmentURL, ResourceNames: []string{"checkout"}, VersionInfo: answer.GetVersionInfo(), ResponseNonce: answer.GetNonce()}
			if s.Send(r) != nil {
				return
			}
		}
	}()
	<-answered
	return func() bool {
		<-ended
		return drops
	}
}

// TestReplicasThatStopAfterTheirLeader asserts that clients drop nothing more once all replicas
// have been stopped, the leader first: before another one leads, or a moment later.
func TestReplicasThatStopAfterTheirLeader(t *testing.T) {
	for _, after := range []string{"the leader has left", "another one leads"} {
		t.Run(after, func(t *testing.T) {
			listen := []string{testhelp.FreePort(t), testhelp.FreePort(t), testhelp.FreePort(t)}
			peers := []string{"a=" + listen[0], "b=" + listen[1], "c=" + listen[2]}
			election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
			begin := func(n int) *member {
				c := replicaConfig(t, string(rune('a'+n)), listen[n], election, sheddingCheckout, peers...)
				return startMemberWith(t, strings.Replace(c, "stop_spread: 0s", "stop_spread: 3s", 1), server.Options{ReplicaTiming: unhurried})
			}
			a := begin(0)
			testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
			b, c := begin(1), begin(2)
			testhelp.Eventually(t, "b and c follow", func() bool { return b.group().Removes && c.group().Removes })
			a.reportsFrom("client-a", 300)
			testhelp.Eventually(t, "all drop", func() bool { return a.server.Plan().Drops() && b.server.Plan().Drops() && c.server.Plan().Drops() })
			version := a.server.Plan().Version
			last := map[string]func() bool{"b": b.drops(), "c": c.drops()}
			var ends sync.WaitGroup
			ends.Go(a.end)
			testhelp.Eventually(t, after, func() bool {
				leader := b.group().Leader
				return leader != "a" && (leader != "" || after == "the leader has left")
			})
			ends.Go(b.end)
			ends.Go(c.end)
			ends.Wait()
			for name, drops := range last {
				if drops() {
					t.Errorf("clients of %s go on dropping after all replicas have stopped", name)
				}
			}
			if p := a.server.Plan(); p.Drops() || p.Version <= version {
				t.Errorf("version %d of the leader drops: %t: it had clients until the others stopped", p.Version, p.Drops())
			}
		})
	}
}

// sheddingCheckout is a service that sheds load.
const sheddingCheckout = "- name: checkout\n  max_shed: 0.5\n  localities:\n" +
	"  - {locality: us/a, max_rate: 100, endpoints: [\"127.0.0.1:9\"]}\n" +
	"  - {locality: us/b, max_rate: 100, endpoints: [\"127.0.0.1:10\"]}\n"

// TestReplicasThatStopTogether asserts that clients of the leader and of a follower drop nothing
// more once all replicas have been stopped at the same time.
func TestReplicasThatStopTogether(t *testing.T) {
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1]}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	var configs [2]string
	for n := range configs {
		configs[n] = replicaConfig(t, string(rune('a'+n)), listen[n], election, sheddingCheckout, peers...)
	}
	begin := func(n int) *member { return startMemberWith(t, configs[n], server.Options{ReplicaTiming: unhurried}) }
	a := begin(0)
	testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	b := begin(1)
	testhelp.Eventually(t, "b follows", func() bool { return b.group().Removes })
	a.reportsFrom("client-a", 300)
	testhelp.Eventually(t, "both drop", func() bool { return a.server.Plan().Drops() && b.server.Plan().Drops() })
	last := map[string]func() bool{"leader": a.drops(), "follower": b.drops()}
	version := a.server.Plan().Version
	var ends sync.WaitGroup
	for _, m := range []*member{a, b} {
		ends.Go(m.end)
	}
	ends.Wait()
	for role, drops := range last {
		if drops() {
			t.Errorf("clients of the %s go on dropping after all replicas have stopped", role)
		}
	}

	_, b = begin(0), begin(1)
	testhelp.Eventually(t, "the group that starts again goes on with the drops", func() bool {
		p := b.server.Plan()
		return p != nil && p.Version > version+900_000 && p.Drops()
	})
}
