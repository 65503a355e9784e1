package xds_test

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// rawStream feeds bytes to a handler as if they came from a client, and checks
// that what goes out can be read.
type rawStream struct {
	t        *testing.T
	ctx      context.Context
	requests [][]byte
	between  func() // runs before each request
	delta    bool
}

func (s *rawStream) Context() context.Context     { return s.ctx }
func (s *rawStream) SetHeader(metadata.MD) error  { return nil }
func (s *rawStream) SendHeader(metadata.MD) error { return nil }
func (s *rawStream) SetTrailer(metadata.MD)       {}

func (s *rawStream) RecvMsg(m any) error {
	if len(s.requests) == 0 {
		return io.EOF
	}
	next := s.requests[0]
	s.requests = s.requests[1:]
	s.between()
	return receive(next, m)
}

// receive does what a gRPC server does with a message that came in.
func receive(message []byte, into any) error {
	return rpc.ServerCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(message)}, into)
}

func (s *rawStream) SendMsg(m any) error {
	data := m.(*rpc.Frame).Pieces.Materialize()
	if s.delta {
		var r discoveryv3.DeltaDiscoveryResponse
		if err := proto.Unmarshal(data, &r); err != nil || r.GetNonce() == "" || r.GetTypeUrl() == "" {
			s.t.Errorf("sent what is no response: %v", err)
		}
		return nil
	}
	var r discoveryv3.DiscoveryResponse
	if err := proto.Unmarshal(data, &r); err != nil || r.GetNonce() == "" || r.GetTypeUrl() == "" {
		s.t.Errorf("sent what is no response: %v", err)
	}
	seen := map[string]bool{}
	for _, a := range r.GetResources() {
		if name := describeResource(s.t, a); seen[name] {
			s.t.Errorf("%s is in one response twice", name)
		} else {
			seen[name] = true
		}
	}
	return nil
}

// split cuts fuzzed bytes into messages with the framing of protobuf.
func split(data []byte) [][]byte {
	var out [][]byte
	for len(data) > 0 && len(out) < 32 {
		m, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return append(out, data)
		}
		out = append(out, m)
		data = data[n:]
	}
	return out
}

func join(messages ...proto.Message) []byte {
	var out []byte
	for _, m := range messages {
		b, _ := proto.Marshal(m)
		out = protowire.AppendBytes(out, b)
	}
	return out
}

// fuzzWorld is one server for all executions of a process, as it is one for all
// streams of its life, and the publications that come round while they last.
// What it takes to make them would be most of an execution.
type fuzzWorld struct {
	server *xds.Server
	sets   []*view.Set
	turn   int
}

func newFuzzWorld() *fuzzWorld {
	w := &fuzzWorld{server: xds.New(xds.Options{Limits: resource.Limits{Names: 100}, Log: slog.New(slog.DiscardHandler)})}
	builder := view.NewBuilder(view.Options{})
	var set *view.Set
	for turn := 1; turn <= 6; turn++ { // until both remainders have come round
		p := &testPlan{version: "v", specs: map[string]*isobar.Service{}, assignments: map[string]*isobar.Assignment{}}
		serve("a", turn)(p)
		if turn%3 > 0 {
			serve("b", 1)(p)
		}
		if turn%2 == 0 {
			withORCA("a")(p)
		}
		set = builder.Build(p, set)
		w.sets = append(w.sets, set)
	}
	w.publish()
	return w
}

func (w *fuzzWorld) publish() {
	w.server.Publish(w.sets[w.turn%len(w.sets)])
	w.turn++
}

func (w *fuzzWorld) stream(t *testing.T, data []byte, delta bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(peer.NewContext(t.Context(), &peer.Peer{}))
	defer cancel()
	s := &rawStream{t: t, ctx: ctx, requests: split(data), between: w.publish, delta: delta}
	_ = w.server.Serve(s, xds.Method{Delta: delta})
	w.server.Clients()
	if n := len(w.server.Subscriptions()); n != 0 {
		t.Errorf("%d subscriptions are left of a stream that ended", n)
	}
}

// FuzzRequests feeds state-of-the-world streams.
func FuzzRequests(f *testing.F) {
	f.Add(join(
		&discoveryv3.DiscoveryRequest{Node: at("us-east/b"), TypeUrl: edsURL, ResourceNames: []string{"a", "b"}},
		&discoveryv3.DiscoveryRequest{TypeUrl: edsURL, ResponseNonce: "1", ResourceNames: []string{"a", "a", "*"}},
		&discoveryv3.DiscoveryRequest{TypeUrl: cdsURL},
		&discoveryv3.DiscoveryRequest{TypeUrl: cdsURL, ErrorDetail: &statuspb.Status{Message: "no"}},
		&discoveryv3.DiscoveryRequest{TypeUrl: ldsURL, ResourceNames: []string{"*", "a"}},
	))
	f.Add(join(&discoveryv3.DiscoveryRequest{TypeUrl: "type.googleapis.com/x"}, &discoveryv3.DiscoveryRequest{}))
	f.Add([]byte{0x05, 0x0a, 0xff})
	w := newFuzzWorld()
	defer w.server.Stop()
	f.Fuzz(func(t *testing.T, data []byte) { w.stream(t, data, false) })
}

// FuzzDeltaRequests feeds delta streams.
func FuzzDeltaRequests(f *testing.F) {
	f.Add(join(
		&discoveryv3.DeltaDiscoveryRequest{
			Node: at("us-east/b"), TypeUrl: edsURL, ResourceNamesSubscribe: []string{"a", "b", "c"},
			InitialResourceVersions: map[string]string{"a": "1", "gone": "2"},
		},
		&discoveryv3.DeltaDiscoveryRequest{TypeUrl: edsURL, ResourceNamesUnsubscribe: []string{"a", "a", "*"}},
		&discoveryv3.DeltaDiscoveryRequest{TypeUrl: cdsURL, InitialResourceVersions: map[string]string{"gone": "2"}},
		&discoveryv3.DeltaDiscoveryRequest{TypeUrl: cdsURL, ResourceNamesSubscribe: []string{"*", "a"}, ResourceNamesUnsubscribe: []string{"a"}},
		&discoveryv3.DeltaDiscoveryRequest{TypeUrl: ldsURL, ResourceNamesSubscribe: []string{"a"}, ErrorDetail: &statuspb.Status{}},
	))
	f.Add([]byte{0x02, 0x0a})
	w := newFuzzWorld()
	defer w.server.Stop()
	f.Fuzz(func(t *testing.T, data []byte) { w.stream(t, data, true) })
}
