package replicas

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/testhelp/replicatest"
)

// shedding is a service with a third of the capacity that the test's client asks for.
const shedding = "- name: checkout\n  max_shed: 0.9\n  localities:\n  - {locality: us/a, max_rate: 100, endpoints: [\"127.0.0.1:9\"]}\n"

// dial connects to one replica.
func (w *world) dial(r *replicatest.Process) *grpc.ClientConn {
	w.t.Helper()
	w.Direct(r)
	conn, err := grpc.NewClient("passthrough:///"+w.Front(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func nodeOf(id string) *corev3.Node {
	return &corev3.Node{Id: id, Cluster: "shop", Locality: &corev3.Locality{Region: "us", Zone: "a"}}
}

// overload reports more load than the service can take, until the replica ends.
func (w *world) overload(r *replicatest.Process) {
	w.t.Helper()
	s, err := loadstatsv3.NewLoadReportingServiceClient(w.dial(r)).StreamLoadStats(w.t.Context(), grpc.WaitForReady(true))
	if err != nil {
		w.t.Fatal(err)
	}
	stats := &endpointv3.ClusterStats{
		ClusterName: "checkout", LoadReportInterval: durationpb.New(time.Second),
		UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
			Locality: &corev3.Locality{Region: "us", Zone: "a"}, TotalIssuedRequests: 300, TotalSuccessfulRequests: 300,
		}},
	}
	go func() {
		each := time.NewTicker(time.Second)
		defer each.Stop()
		for s.Send(&loadstatsv3.LoadStatsRequest{Node: nodeOf("load"), ClusterStats: []*endpointv3.ClusterStats{stats}}) == nil {
			<-each.C
		}
	}()
}

// drops is what a client last got of a replica.
type drops struct {
	mu    sync.Mutex
	now   bool
	ended chan struct{}
}

func (d *drops) drops() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

// follow opens a stream at a replica, and follows it until it ends.
func (w *world) follow(r *replicatest.Process) *drops {
	w.t.Helper()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(w.dial(r)).StreamAggregatedResources(w.t.Context(), grpc.WaitForReady(true))
	if err != nil {
		w.t.Fatal(err)
	}
	request := &discoveryv3.DiscoveryRequest{
		Node: nodeOf("follows-" + r.Name), ResourceNames: []string{"checkout"},
		TypeUrl: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
	}
	d := &drops{ended: make(chan struct{})}
	go func() {
		defer close(d.ended)
		for s.Send(request) == nil {
			answer, err := s.Recv()
			if err != nil {
				return
			}
			for _, resource := range answer.GetResources() {
				var a endpointv3.ClusterLoadAssignment
				if err := resource.UnmarshalTo(&a); err != nil {
					w.t.Error(err)
				}
				d.mu.Lock()
				d.now = len(a.GetPolicy().GetDropOverloads()) > 0
				d.mu.Unlock()
			}
			request.VersionInfo, request.ResponseNonce = answer.GetVersionInfo(), answer.GetNonce()
		}
	}()
	return d
}

// TestAllStopAfterTheirLeaderWasKilled asserts that clients drop nothing more once the leader has
// been killed and the other replicas have been stopped a moment later, while its lease still runs.
func TestAllStopAfterTheirLeaderWasKilled(t *testing.T) {
	program := filepath.Join(t.TempDir(), "isobar")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/isobar")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building isobar: %v; %s", err, out)
	}
	w := &world{t: t, etcd: startCluster(t, 3)}
	var members []string
	for _, m := range w.etcd.members {
		members = append(members, strings.TrimPrefix(m.client, "http://"))
	}
	w.Group = replicatest.New(t, replicatest.Options{Program: program, Zones: []isobar.Locality{isobar.MustLocality("us/a")}, Etcd: members})
	for _, r := range w.Replicas {
		w.Configure(r, shedding)
		w.Start(r)
	}
	w.rest()
	leader, _ := w.Leader()
	w.overload(leader)
	clients := map[string]*drops{}
	for _, r := range w.others(leader) {
		clients[r.Name] = w.follow(r)
	}
	for name, c := range clients {
		w.Await("drops at "+name, c.drops)
	}
	w.Kill(leader)
	began := time.Now()
	var ends sync.WaitGroup
	for _, r := range w.others(leader) {
		ends.Go(func() { w.Stop(r) })
	}
	ends.Wait()
	took := time.Since(began)
	t.Logf("the others ended within %.1f s", took.Seconds())
	if took > takeover+election+5*time.Second { // and the time in which they send clients away
		t.Errorf("the others took %v to end", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for name, c := range clients {
		select {
		case <-c.ended:
		case <-ctx.Done():
			t.Fatal(fmt.Errorf("the stream at %s did not end: %w", name, ctx.Err()))
		}
		if c.drops() {
			t.Errorf("clients of %s go on dropping after all replicas have ended", name)
		}
	}
}
