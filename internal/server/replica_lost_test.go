package server_test

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

const assignmentURL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

func (m *member) dial() *grpc.ClientConn {
	m.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+m.server.XDSAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// shows opens a stream that shows a version, of state of the world or, with delta, of a
// resource, and returns what the first answer has for locality us/b, in percent.
func (m *member) shows(conn *grpc.ClientConn, version string, delta bool) (weight uint32, err error) {
	client := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	node := nodeIn("returns", "us/a")
	var a endpointv3.ClusterLoadAssignment
	if delta {
		s, err := client.DeltaAggregatedResources(m.t.Context())
		if err != nil {
			return 0, err
		}
		defer func() { _ = s.CloseSend() }()
		r := &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: assignmentURL, ResourceNamesSubscribe: []string{"checkout"}}
		if version != "" {
			r.InitialResourceVersions = map[string]string{"checkout": version}
		}
		if err := s.Send(r); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		answer, err := s.Recv()
		if err != nil {
			return 0, err
		}
		return weightOf(&a, answer.GetResources()[0].GetResource().UnmarshalTo(&a))
	}
	s, err := client.StreamAggregatedResources(m.t.Context())
	if err != nil {
		return 0, err
	}
	defer func() { _ = s.CloseSend() }()
	r := &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: assignmentURL, ResourceNames: []string{"checkout"}, VersionInfo: version}
	if err := s.Send(r); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	answer, err := s.Recv()
	if err != nil {
		return 0, err
	}
	return weightOf(&a, answer.GetResources()[0].UnmarshalTo(&a))
}

func weightOf(a *endpointv3.ClusterLoadAssignment, err error) (uint32, error) {
	all, there := uint32(0), uint32(0)
	for _, l := range a.GetEndpoints() {
		if l.GetPriority() > 0 {
			continue
		}
		all += l.GetLoadBalancingWeight().GetValue()
		if l.GetLocality().GetZone() == "b" {
			there += l.GetLoadBalancingWeight().GetValue()
		}
	}
	return 100 * there / max(1, all), err
}

// reportsFrom opens a load report stream and reports each second, until the test ends, that
// all requests of a client in us/a went to us/b. It returns once the stream is accepted.
func (m *member) reportsFrom(node string, rate uint64) {
	m.t.Helper()
	s := m.loadStream(node)
	stats := &endpointv3.ClusterStats{
		ClusterName: "checkout", LoadReportInterval: durationpb.New(time.Second),
		UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
			Locality: protoLocality("us/b"), TotalIssuedRequests: rate, TotalSuccessfulRequests: rate,
		}},
	}
	go func() {
		each := time.NewTicker(time.Second)
		defer each.Stop()
		for {
			select {
			case <-m.t.Context().Done():
				return
			case <-each.C:
			}
			if s.Send(&loadstatsv3.LoadStatsRequest{ClusterStats: []*endpointv3.ClusterStats{stats}}) != nil {
				return
			}
		}
	}()
}

const twoZones = "- name: checkout\n  localities:\n" +
	"  - {locality: us/a, max_rate: 1000, endpoints: [\"127.0.0.1:9\"]}\n" +
	"  - {locality: us/b, max_rate: 1000, endpoints: [\"127.0.0.1:10\"]}\n"

// TestAllDisksLost asserts that a group whose replicas have all lost their disks serves new
// clients, and refuses clients that have an assignment of a lost plan until most of the
// fleet has reported load; that it then goes on from what clients do; and that all this
// holds on followers, and after another replica has taken over meanwhile.
func TestAllDisksLost(t *testing.T) {
	t.Parallel()
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1]}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	// Clients forget endpoints, so that the group waits for 15 s.
	services := strings.Replace(twoZones, "- name: checkout\n", "- name: checkout\n  assignment: {endpoint_stale_after: 45s}\n", 1)
	begin := func(n int) *member { // with an empty disk, each time
		return startMemberWith(t, replicaConfig(t, string(rune('a'+n)), listen[n], election, services, peers...), server.Options{ReplicaTiming: unhurried})
	}
	first := begin(0)
	testhelp.Eventually(t, "a leads", func() bool { return first.group().Leader == "a" && first.server.Plan() != nil })
	if weight, err := first.shows(first.dial(), strconv.FormatUint(first.server.Plan().Version, 10), false); err != nil || weight > 60 {
		t.Fatalf("a group that has lost nothing: us/b has %d%%, %v", weight, err)
	}
	lost := strconv.FormatUint(first.server.Plan().Version, 10)
	first.end()

	a := begin(0)
	testhelp.Eventually(t, "a leads without a disk", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	b := begin(1)
	testhelp.Eventually(t, "b follows", func() bool { return b.group().Removes })
	judge := func(members ...*member) {
		t.Helper()
		for _, m := range members {
			conn := m.dial()
			for _, delta := range []bool{false, true} {
				if _, err := m.shows(conn, lost, delta); status.Code(err) != codes.Unavailable {
					t.Errorf("a client with version %s of the lost plans (delta %t) got %v", lost, delta, err)
				}
				if _, err := m.shows(conn, "", delta); err != nil {
					t.Errorf("a new client (delta %t): %v", delta, err)
				}
			}
			if _, err := m.shows(conn, "7", false); err != nil {
				t.Errorf("a client of another control plane: %v", err)
			}
		}
	}
	judge(a, b)
	provisional := a.server.Plan().Version
	a.end()
	testhelp.Eventually(t, "b leads", func() bool { return b.group().Leader == "b" && b.server.Plan().Version > provisional+900_000 })
	a = begin(0)
	testhelp.Eventually(t, "a follows", func() bool { return a.group().Removes && a.server.Plan() != nil })
	judge(b, a)
	if s, _ := b.server.Plan().Service("checkout"); s.Hold == "" {
		t.Error("operators are not told why nothing is decided")
	}

	a.reportsFrom("client-a", 300)
	b.reportsFrom("client-b", 300)
	for _, m := range []*member{a, b} {
		conn, weight := m.dial(), uint32(0)
		testhelp.Eventually(t, "an answer for a client that returns", func() (ok bool) {
			var err error
			weight, err = m.shows(conn, lost, false)
			if err != nil && status.Code(err) != codes.Unavailable {
				t.Fatal(err)
			}
			return err == nil
		})
		// By itself Isobar gives us/b nothing. The first plan after the loss has what
		// clients do, and each decision moves at most max_shift.
		if weight < 70 {
			t.Errorf("clients in us/a send everything to us/b; the first answer gives it %d%%", weight)
		}
	}
}

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
	t.Parallel()
	for _, after := range []string{"the leader has left", "another one leads"} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
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
	t.Parallel()
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
