package interop

import (
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"

	vocabulary "github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// grpc-go does with random assignments what `isobar predict` says.
func TestGRPCGoDoesAsPredicted(t *testing.T) {
	t.Parallel()
	assignments, requests := predictSizes()
	hosts := make([]string, 24)
	for i := range hosts {
		b := startBackend(t, "", "")
		b.name = b.address // before any call
		hosts[i] = b.address
	}
	server := startAssignmentServer(t)
	var g goodness
	for n, done := 0, 0; done < assignments; n++ {
		m := randomAssignment(2, n, slices.Clone(hosts))
		c, ok := predictable(m, true)
		if !ok {
			continue
		}
		done++
		p := dataplane.Predict(c, dataplane.GRPC, dataplane.DefaultOptions())
		server.addService(t, m)
		conn := server.dial(t, m.GetClusterName())
		awaitAll(t, conn, m, &p)
		if !slices.ContainsFunc(p.Priorities, func(l dataplane.PriorityPrediction) bool { return l.Load > 0 }) {
			p.PassPercent = 100 // grpc-go drops nothing while it has no endpoint to send to: all calls fail
		}
		g.judge(m.GetClusterName(), m, &p, callOften(t.Context(), conn, requests))
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	g.report(t)
}

// addService adds what a gRPC client asks for on its way to an assignment.
func (s *assignmentServer) addService(t *testing.T, m *endpointv3.ClusterLoadAssignment) {
	t.Helper()
	name := m.GetClusterName()
	service := &vocabulary.Service{Name: name}
	for _, kind := range []resource.Kind{resource.Listener, resource.Route, resource.Cluster} {
		resource, err := resource.StaticOf(kind, service, name, true)
		if err != nil {
			t.Fatal(err)
		}
		s.add(t, kind, name, resource)
	}
	s.set(t, m)
}

// awaitAll calls until each endpoint that is to get something has answered: a
// client picks only among those to which it is connected.
func awaitAll(t *testing.T, conn *grpc.ClientConn, m *endpointv3.ClusterLoadAssignment, p *dataplane.Prediction) {
	t.Helper()
	seen := map[string]int{}
	await(t, fmt.Sprintf("connection to each endpoint of %v", m), func() error {
		got := callOften(t.Context(), conn, 100)
		for at, n := range got.hosts {
			seen[at] += n
		}
		for _, priority := range p.Priorities {
			for _, l := range priority.Localities {
				for _, e := range l.Endpoints {
					if e.Share > 0 && seen[e.Address] == 0 {
						return fmt.Errorf("no answer from %s yet", e.Address)
					}
				}
			}
		}
		return nil
	})
}

// callOften calls n times, one after the other.
func callOften(ctx context.Context, conn *grpc.ClientConn, n int) *tally {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, out := testpb.NewTestServiceClient(conn), &tally{hosts: map[string]int{}}
	for range n {
		var header metadata.MD
		one, cancel := context.WithTimeout(ctx, 10*time.Second)
		_, err := client.EmptyCall(one, &testpb.Empty{}, grpc.Header(&header))
		cancel()
		switch {
		case err == nil && len(header.Get("hostname")) == 1:
			out.hosts[header.Get("hostname")[0]]++
		case strings.Contains(status.Convert(err).Message(), "dropped"):
			out.dropped++
		default:
			out.failed++
		}
	}
	return out
}

// grpc-go follows drops and keeps its connections: what endpoints say of drops in
// their metadata is for Envoy.
func TestGRPCGoFollowsDrops(t *testing.T) {
	t.Parallel()
	const requests = 1000
	var hosts []string
	var accepted atomic.Int64
	for range 3 {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		b := &backend{name: lis.Addr().String(), server: grpc.NewServer()}
		testpb.RegisterTestServiceServer(b.server, b)
		go func() { _ = b.server.Serve(counting{lis, &accepted}) }() // ends with kill
		t.Cleanup(b.kill)
		hosts = append(hosts, b.name)
	}
	server := startAssignmentServer(t)
	conn := server.dial(t, "checkout")
	for i, drop := range []float64{0, 0.51, 0.12, 0} {
		a := &vocabulary.Assignment{Service: "checkout", Drop: drop, Priorities: [][]vocabulary.LocalityWeight{{
			group("a", 7000, hosts[0], hosts[1]), group("b", 3000, hosts[2]),
		}}}
		a.Priorities[0][0].Endpoints[1].Health = vocabulary.Draining
		m, err := resource.Assignment(a)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			server.addService(t, m)
		} else {
			server.set(t, m)
		}
		await(t, fmt.Sprintf("drop of %v", drop), func() error {
			got := callOften(t.Context(), conn, requests)
			if seen, sd := float64(got.dropped)/requests, math.Sqrt(drop*(1-drop)/requests); math.Abs(seen-drop) > 5*sd || got.failed > 0 {
				return fmt.Errorf("%v were dropped and %d failed", seen, got.failed)
			}
			return nil
		})
	}
	if n := accepted.Load(); n != 2 {
		t.Errorf("%d connections to 2 endpoints that are healthy", n)
	}
}

// counting counts the connections that it accepts.
type counting struct {
	net.Listener

	n *atomic.Int64
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.n.Add(1)
	}
	return conn, err
}

// dial makes a client of a service of the server; calls wait for the service.
func (s *assignmentServer) dial(t *testing.T, service string) *grpc.ClientConn {
	t.Helper()
	resolver, err := xds.NewXDSResolverWithConfigForTesting(fmt.Appendf(nil,
		`{"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}], "node": {"id": "test"}}`, s.address))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///"+service, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithResolvers(resolver))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
