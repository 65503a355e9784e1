//go:build !race

package resource_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	xdsclient "google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// How many assignments a real client is shown, and how many in one response.
const (
	shownAssignments = 100_000
	shownAtOnce      = 1_000
)

// TestClientTakesRandomAssignments shows a real client of grpc-go 100,000 random
// assignments: it parses all that a response holds, also what it has no use
// for, and rejects the response for any that it does not accept. All of them
// pass our own rules and come back from the old API versions, too.
func TestClientTakesRandomAssignments(t *testing.T) {
	p := startParser(t)
	draw := rapid.Custom(drawSent)
	for first := 0; first < shownAssignments; first += shownAtOnce {
		batch := make([]*endpointv3.ClusterLoadAssignment, shownAtOnce)
		for i := range batch {
			m := draw.Example(first + i)
			m.ClusterName = fmt.Sprintf("%s-%d", m.GetClusterName(), i)
			if err := resource.CheckAssignment(m, m.GetClusterName()); err != nil {
				t.Fatalf("%v: %v", err, m)
			}
			if back, _ := thereAndBack(t, rpc.V2, m); !proto.Equal(back, asV2(m)) {
				t.Fatalf("from v2 came %v, want %v", back, asV2(m))
			}
			old, _ := thereAndBack(t, rpc.V2017, m)
			check2017(t, m, old)
			batch[i] = m
		}
		if text := p.show(batch...); text != "" {
			t.Fatalf("the client rejects: %s", text)
		}
	}
	// It does look: one that is wrong among many is seen.
	bad := draw.Example(1)
	bad.ClusterName = "bad"
	bad.Endpoints = []*endpointv3.LocalityLbEndpoints{{
		Locality: &corev3.Locality{Region: "r"}, Priority: 1, LoadBalancingWeight: wrapperspb.UInt32(1),
	}}
	if text := p.show(draw.Example(2), bad); text == "" {
		t.Fatal("the client takes a gap between priorities")
	}
}

// TestClientRefusesWhatGRPCRefuses holds our list against a real client.
func TestClientRefusesWhatGRPCRefuses(t *testing.T) {
	p := startParser(t)
	for _, tt := range mergeTests {
		m := ofParts(t, tt.parts)
		err := resource.RefusedByGRPC(m)
		if text := p.show(m); (text != "") != (err != nil) {
			t.Errorf("%s: the client says %q, we say %v", tt.name, text, err)
		}
	}
}

// parser is a client of grpc-go with a server that sends it what it is given.
type parser struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	t     *testing.T
	send  chan []*endpointv3.ClusterLoadAssignment
	heard chan string // what the client says of it: "" = accepted
	done  chan struct{}

	service isobar.Service // whose cluster it gets
	asEnvoy bool           // as Envoy gets it
	refused chan string    // what the client says of clusters that it rejects
}

const parsed = "checkout" // the one service that the client is interested in

func startParser(t *testing.T) *parser {
	t.Helper()
	return startParserOf(t, isobar.ClusterSettings{}, false)
}

func startParserOf(t *testing.T, settings isobar.ClusterSettings, asEnvoy bool) *parser {
	t.Helper()
	p := &parser{
		t: t, send: make(chan []*endpointv3.ClusterLoadAssignment), heard: make(chan string), done: make(chan struct{}),
		service: isobar.Service{Name: parsed, ClusterSettings: settings}, asEnvoy: asEnvoy, refused: make(chan string, 1),
	}
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, p)
	resolver, err := xdsclient.NewXDSResolverWithConfigForTesting(fmt.Appendf(nil, `{
		"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}],
		"node": {"id": "parser"}
	}`, testhelp.Loopback(t, g)))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///"+parsed, grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	conn.Connect()
	t.Cleanup(func() {
		close(p.done)
		_ = conn.Close()
	})
	return p
}

// show sends assignments and returns what the client says of them.
func (p *parser) show(all ...*endpointv3.ClusterLoadAssignment) string {
	p.t.Helper()
	patience := time.After(time.Minute)
	select {
	case p.send <- all:
	case <-patience:
		p.t.Fatal("the client does not ask for endpoints")
	}
	select {
	case text := <-p.heard:
		return text
	case <-patience:
		p.t.Fatal("the client does not answer")
	}
	return ""
}

// StreamAggregatedResources leads the client to its endpoints, then sends what
// it is given.
func (p *parser) StreamAggregatedResources(g discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	version := 0
	for {
		r, err := g.Recv()
		if err != nil {
			return err
		}
		kind := resource.KindOf(r.GetTypeUrl())
		if kind == resource.Endpoints {
			if r.GetResponseNonce() != "" {
				select {
				case p.heard <- r.GetErrorDetail().GetMessage():
				case <-p.done:
					return nil
				}
			}
			select {
			case all := <-p.send:
				version++
				if err := g.Send(assignmentsOf(p.t, version, all)); err != nil {
					return err
				}
			case <-p.done:
				return nil
			}
			continue
		}
		if text := r.GetErrorDetail().GetMessage(); text != "" {
			select {
			case p.refused <- text:
			default: // it was told already
			}
		}
		if r.GetResponseNonce() != "" || len(r.GetResourceNames()) == 0 {
			continue
		}
		m, err := resource.StaticOf(kind, &p.service, parsed, !p.asEnvoy)
		if err != nil {
			return err
		}
		if err := g.Send(&discoveryv3.DiscoveryResponse{VersionInfo: "1", Nonce: "1", TypeUrl: r.GetTypeUrl(), Resources: []*anypb.Any{anyOf(p.t, m)}}); err != nil {
			return err
		}
	}
}

func assignmentsOf(t *testing.T, version int, all []*endpointv3.ClusterLoadAssignment) *discoveryv3.DiscoveryResponse {
	t.Helper()
	out := &discoveryv3.DiscoveryResponse{VersionInfo: fmt.Sprint(version), Nonce: fmt.Sprint(version), TypeUrl: resource.EndpointsURL}
	wanted := proto.CloneOf(all[0])
	wanted.ClusterName = parsed
	for _, m := range slices.Concat([]*endpointv3.ClusterLoadAssignment{wanted}, all) {
		out.Resources = append(out.Resources, anyOf(t, m))
	}
	return out
}

func anyOf(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Error(err)
	}
	return a
}

// Only some settings are the client's to refuse: this is what a real client of
// grpc-go says of them.
func TestClientTakesClusters(t *testing.T) {
	endpoints := &endpointv3.ClusterLoadAssignment{ClusterName: "other"}
	for _, orca := range []bool{false, true} {
		p := startParserOf(t, everything(), false)
		p.service.ORCA.On = orca
		if text := p.show(endpoints); text != "" {
			t.Errorf("the client rejects %s", text)
		}
	}
	// It does look: what is Envoy's it refuses.
	p := startParserOf(t, everything(), true)
	select {
	case text := <-p.refused:
		t.Logf("the client says %s", text)
	case <-time.After(time.Minute):
		t.Error("the client takes files of Envoy's")
	}
}
