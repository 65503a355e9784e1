package csds_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/xds/csds"
)

// TestStates: a client that accepts, one that rejects, one that says nothing,
// and names that stand for nothing.
func TestStates(t *testing.T) {
	inWorld(t, services(1, "a", "b"), func(w *world) {
		w.ads("good", edsURL, "a", "nowhere").answer("", "a", "nowhere")
		w.ads("bad", edsURL, "b").answer("not to my taste", "b")
		began := time.Now()
		w.ads("silent", edsURL, "a")
		w.ads("all", cdsURL, "a", "gone").answer("", "a", "gone")
		got := w.fetch(&statusv3.ClientStatusRequest{})
		expect(t, lines(got),
			"good ClusterLoadAssignment a SYNCED ACKED",
			"good ClusterLoadAssignment nowhere NOT_SENT REQUESTED",
			"bad ClusterLoadAssignment b ERROR NACKED",
			"silent ClusterLoadAssignment a STALE REQUESTED",
			"all Cluster a SYNCED ACKED",
			"all Cluster gone NOT_SENT DOES_NOT_EXIST",
		)
		good, bad, silent := got.GetConfig()[0], got.GetConfig()[1].GetGenericXdsConfigs()[0], got.GetConfig()[2].GetGenericXdsConfigs()[0]
		if want := node("good"); !proto.Equal(good.GetNode(), want) {
			t.Errorf("node %v, want %v", good.GetNode(), want)
		}
		a, nowhere := good.GetGenericXdsConfigs()[0], good.GetGenericXdsConfigs()[1]
		var m endpointv3.ClusterLoadAssignment
		if err := a.GetXdsConfig().UnmarshalTo(&m); err != nil || m.GetClusterName() != "a" || len(m.GetEndpoints()) != 1 || a.GetVersionInfo() == "" || a.GetErrorState() != nil {
			t.Errorf("%v: %v", err, a)
		}
		if nowhere.GetXdsConfig() != nil || nowhere.GetVersionInfo() != "" {
			t.Errorf("what does not exist has %v", nowhere)
		}
		e := bad.GetErrorState()
		if e.GetDetails() != "not to my taste" || e.GetLastUpdateAttempt().AsTime().After(time.Now()) || e.GetLastUpdateAttempt() == nil || e.GetVersionInfo() != bad.GetVersionInfo() {
			t.Errorf("error state %v", e)
		}
		if at := silent.GetLastUpdated().AsTime(); at.Before(began) || at.After(time.Now()) {
			t.Errorf("last updated %v, sent after %v", at, began)
		}
		for _, c := range w.fetch(&statusv3.ClientStatusRequest{ExcludeResourceContents: true}).GetConfig() {
			for _, x := range c.GetGenericXdsConfigs() {
				if x.GetXdsConfig() != nil {
					t.Errorf("content in spite of exclude_resource_contents: %v", x)
				}
			}
		}
	})
}

// TestDelta: a delta client is told what does not exist, and a wildcard covers
// what it did not name.
func TestDelta(t *testing.T) {
	inWorld(t, services(1, "a", "b"), func(w *world) {
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(w.conn).DeltaAggregatedResources(w.t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []*discoveryv3.DeltaDiscoveryRequest{
			{Node: node("delta"), TypeUrl: cdsURL},
			{TypeUrl: edsURL, ResourceNamesSubscribe: []string{"a", "nowhere"}},
		} {
			if err := stream.Send(r); err != nil {
				t.Fatal(err)
			}
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce()}); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, lines(w.fetch(&statusv3.ClientStatusRequest{})),
			"delta Cluster a SYNCED ACKED",
			"delta Cluster b SYNCED ACKED",
			"delta ClusterLoadAssignment a SYNCED ACKED",
			"delta ClusterLoadAssignment nowhere NOT_SENT DOES_NOT_EXIST",
		)
	})
}

// matching is a matcher of node ids.
func matching(p *matcherv3.StringMatcher) *matcherv3.NodeMatcher {
	return &matcherv3.NodeMatcher{NodeId: p}
}

func exact(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
}

func regex(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: s}}}
}

func ignoringCase(m *matcherv3.StringMatcher) *matcherv3.StringMatcher {
	m.IgnoreCase = true
	return m
}

// TestNodeMatchers: every kind, and any of several will do.
func TestNodeMatchers(t *testing.T) {
	prefix := &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "web-"}}
	suffix := &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: "-2"}}
	contains := &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Contains{Contains: "B-"}}
	inWorld(t, services(1, "a"), func(w *world) {
		for _, id := range []string{"web-1", "web-2", "API-2"} {
			w.ads(id, edsURL, "a")
		}
		for _, tt := range []struct {
			name     string
			matchers []*matcherv3.NodeMatcher
			want     string
		}{
			{"none", nil, "web-1 web-2 API-2"},
			{"any node", []*matcherv3.NodeMatcher{{}}, "web-1 web-2 API-2"},
			{"exact", []*matcherv3.NodeMatcher{matching(exact("web-1"))}, "web-1"},
			{"exact, no one", []*matcherv3.NodeMatcher{matching(exact("web"))}, ""},
			{"prefix", []*matcherv3.NodeMatcher{matching(prefix)}, "web-1 web-2"},
			{"suffix", []*matcherv3.NodeMatcher{matching(suffix)}, "web-2 API-2"},
			{"contains", []*matcherv3.NodeMatcher{matching(contains)}, ""},
			{"contains, any case", []*matcherv3.NodeMatcher{matching(ignoringCase(proto.CloneOf(contains)))}, "web-1 web-2"},
			{"exact, any case", []*matcherv3.NodeMatcher{matching(ignoringCase(exact("api-2")))}, "API-2"},
			{"regex", []*matcherv3.NodeMatcher{matching(regex(`web-\d`))}, "web-1 web-2"},
			{"regex, the whole id", []*matcherv3.NodeMatcher{matching(regex(`web|API`))}, ""},
			{"regex, its own case", []*matcherv3.NodeMatcher{matching(ignoringCase(regex(`WEB-1`)))}, ""},
			{"one of two", []*matcherv3.NodeMatcher{matching(exact("web-1")), matching(regex("API.*"))}, "web-1 API-2"},
		} {
			var got []string
			for _, c := range w.fetch(&statusv3.ClientStatusRequest{NodeMatchers: tt.matchers}).GetConfig() {
				got = append(got, c.GetNode().GetId())
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("%s: %v, want %s", tt.name, got, tt.want)
			}
		}
	})
}

// TestBadMatchers: what can't be matched is refused, with the field.
func TestBadMatchers(t *testing.T) {
	metadata := &matcherv3.NodeMatcher{NodeMetadatas: []*matcherv3.StructMatcher{{}}}
	custom := &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Custom{}}
	empty := &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{}}
	inWorld(t, services(1, "a"), func(w *world) {
		for want, matchers := range map[string][]*matcherv3.NodeMatcher{
			"node_matchers[1].node_metadatas: the metadata of nodes is not kept; match by node_id": {{}, metadata},
			"node_matchers[0].node_id: no pattern; want exact":                                     {matching(&matcherv3.StringMatcher{})},
			"node_matchers[0].node_id.custom: not supported":                                       {matching(custom)},
			"node_matchers[0].node_id.prefix: empty":                                               {matching(empty)},
			"node_matchers[0].node_id.exact: 1025 bytes long, want at most 1024":                   {matching(exact(strings.Repeat("x", 1025)))},
			"node_matchers[0].node_id.safe_regex.regex: error parsing regexp":                      {matching(regex("("))},
			"node_matchers[0].node_id.safe_regex.regex: error parsing regexp: unexpected )":        {matching(regex(")|("))},
			"node_matchers: 101 matchers, want at most 100":                                        make([]*matcherv3.NodeMatcher, 101),
		} {
			for i := range matchers {
				if matchers[i] == nil {
					matchers[i] = &matcherv3.NodeMatcher{}
				}
			}
			_, err := w.csds.FetchClientStatus(w.t.Context(), &statusv3.ClientStatusRequest{NodeMatchers: matchers})
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	})
}

// TestTooLarge: an answer that gRPC clients would not take is not made; what was
// advised helps.
func TestTooLarge(t *testing.T) {
	inWorld(t, services(4000, "a"), func(w *world) {
		for i := range 50 {
			w.ads(fmt.Sprint("client-", i), edsURL, "a")
		}
		w.settle()
		_, err := w.csds.FetchClientStatus(w.t.Context(), &statusv3.ClientStatusRequest{})
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "name fewer clients with node_matchers, or set exclude_resource_contents") {
			t.Errorf("%v", err)
		}
		if got := w.fetch(&statusv3.ClientStatusRequest{ExcludeResourceContents: true}); len(got.GetConfig()) != 50 || proto.Size(got) > csds.MaxAnswer {
			t.Errorf("%d clients without content", len(got.GetConfig()))
		}
		if got := w.fetch(&statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{matching(exact("client-7"))}}); len(got.GetConfig()) != 1 {
			t.Errorf("%d clients of that name", len(got.GetConfig()))
		}
	})
}

// TestStream: each request is answered, with what is so by then; a bad one ends
// the stream, and so does the end of the server.
func TestStream(t *testing.T) {
	inWorld(t, services(1, "a"), func(w *world) {
		open := func() statusv3.ClientStatusDiscoveryService_StreamClientStatusClient {
			stream, err := w.csds.StreamClientStatus(w.t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return stream
		}
		ask := func(s statusv3.ClientStatusDiscoveryService_StreamClientStatusClient, m ...*matcherv3.NodeMatcher) ([]string, error) {
			_ = s.Send(&statusv3.ClientStatusRequest{NodeMatchers: m}) // Recv knows why it failed
			r, err := s.Recv()
			return lines(r), err
		}
		stream := open()
		if got, err := ask(stream); err != nil || len(got) != 0 {
			t.Errorf("%v, %v", got, err)
		}
		w.ads("c", edsURL, "a").answer("", "a")
		got, err := ask(stream)
		if expect(t, got, "c ClusterLoadAssignment a SYNCED ACKED"); err != nil {
			t.Error(err)
		}
		if _, err := ask(stream, matching(regex("("))); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a bad matcher: %v", err)
		}
		ended := open()
		if _, err := ask(ended); err != nil {
			t.Error(err)
		}
		if err := ended.CloseSend(); err != nil {
			t.Error(err)
		}
		if _, err := ended.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("after the last request: %v", err)
		}
		all := make([]statusv3.ClientStatusDiscoveryService_StreamClientStatusClient, csds.MaxStreams)
		for i := range all {
			all[i] = open()
			if _, err := ask(all[i]); err != nil {
				t.Fatalf("stream %d: %v", i, err)
			}
		}
		if _, err := ask(open()); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one more than allowed: %v", err)
		}
		w.stop()
		if _, err := all[0].Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("when the server stops: %v", err)
		}
	})
}

// TestGRPCGo: what gRPC's own client subscribes to is seen, of all four types,
// and who it is.
func TestGRPCGo(t *testing.T) {
	zone := isobar.MustLocality("us/a")
	backend, err := fleet.StartBackend(fleet.BackendOptions{Locality: zone, Concurrency: 10, ServiceTime: time.Millisecond, MaxQueue: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Kill()
	topology := &isobar.Topology{Services: []isobar.Service{{Name: "a", Localities: []isobar.ServiceLocality{
		{Locality: zone, Endpoints: []isobar.Endpoint{{Address: backend.Address()}}},
	}}}}
	s, err := fleet.ServeIsobar(t.Context(), topology, &fleet.Scenario{Interval: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	c, err := fleet.NewClient(fleet.ClientOptions{ID: "real", Cluster: "web", Locality: zone, Server: s.XDSAddress(), Service: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(s.XDSAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	want := []string{"real Cluster a SYNCED ACKED", "real ClusterLoadAssignment a SYNCED ACKED", "real Listener a SYNCED ACKED", "real RouteConfiguration a SYNCED ACKED"}
	for look := time.NewTicker(20 * time.Millisecond); ; {
		got, err := statusv3.NewClientStatusDiscoveryServiceClient(conn).FetchClientStatus(ctx, &statusv3.ClientStatusRequest{})
		if err != nil {
			look.Stop()
			t.Fatal(err)
		}
		if slices.Equal(lines(got), want) {
			look.Stop()
			if n := got.GetConfig()[0].GetNode(); n.GetUserAgentName() != "gRPC Go" || n.GetUserAgentVersion() != grpc.Version {
				t.Errorf("agent %q %q", n.GetUserAgentName(), n.GetUserAgentVersion())
			}
			return
		}
		select {
		case <-look.C: // the last acknowledgement may be on its way
		case <-ctx.Done():
			look.Stop()
			expect(t, lines(got), want...)
			return
		}
	}
}

// TestStreamsThatBreakOff: a stream that its client gives up makes room for
// another, however it ends.
func TestStreamsThatBreakOff(t *testing.T) {
	inWorld(t, services(1, "a"), func(w *world) {
		for i := range 3 * csds.MaxStreams {
			ctx, cancel := context.WithCancel(w.t.Context())
			stream, err := w.csds.StreamClientStatus(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&statusv3.ClientStatusRequest{}); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); err != nil {
				t.Fatalf("stream %d: %v", i, err)
			}
			cancel()
			w.settle()
		}
	})
}
