package xds_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// ackingStream is a client without a network: it accepts at once.
type ackingStream struct {
	ctx     context.Context
	next    chan []byte
	names   []string
	shuffle bool // the names come in another order each time, as from grpc-go
	delta   bool
	got     *sync.WaitGroup
}

func (s *ackingStream) Context() context.Context     { return s.ctx }
func (s *ackingStream) SetHeader(metadata.MD) error  { return nil }
func (s *ackingStream) SendHeader(metadata.MD) error { return nil }
func (s *ackingStream) SetTrailer(metadata.MD)       {}

func (s *ackingStream) RecvMsg(m any) error {
	select {
	case r := <-s.next:
		return receive(r, m)
	case <-s.ctx.Done():
		return io.EOF
	}
}

func (s *ackingStream) SendMsg(m any) error {
	pieces := m.(*rpc.Frame).Pieces
	_, _, n := protowire.ConsumeTag(pieces[len(pieces)-1].ReadOnlyData())
	nonce, _ := protowire.ConsumeString(pieces[len(pieces)-1].ReadOnlyData()[n:])
	if s.shuffle {
		rand.Shuffle(len(s.names), func(i, j int) { s.names[i], s.names[j] = s.names[j], s.names[i] })
	}
	if s.delta {
		s.next <- encode(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: edsURL, ResponseNonce: nonce})
	} else {
		s.next <- encode(&discoveryv3.DiscoveryRequest{TypeUrl: edsURL, ResponseNonce: nonce, ResourceNames: s.names})
	}
	s.got.Done()
	return nil
}

// first is what the stream says first.
func (s *ackingStream) first(zone string) []byte {
	if s.delta {
		return encode(&discoveryv3.DeltaDiscoveryRequest{Node: at(zone), TypeUrl: edsURL, ResourceNamesSubscribe: s.names})
	}
	return encode(&discoveryv3.DiscoveryRequest{Node: at(zone), TypeUrl: edsURL, ResourceNames: s.names})
}

func encode(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// BenchmarkPublish changes one of 100 services for all streams, each of which
// subscribes to all; it excludes the network and counts the encoding of
// acknowledgements.
func BenchmarkPublish(b *testing.B) {
	for _, streams := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprint(streams, " streams"), func(b *testing.B) { benchmarkPublish(b, streams, ackingStream{}) })
	}
	b.Run("1000 streams, names in any order", func(b *testing.B) { benchmarkPublish(b, 1000, ackingStream{shuffle: true}) })
	b.Run("1000 streams, delta", func(b *testing.B) { benchmarkPublish(b, 1000, ackingStream{delta: true}) })
}

func benchmarkPublish(b *testing.B, streams int, kind ackingStream) {
	b.Helper()
	server, builder := xds.New(xds.Options{}), view.NewBuilder(view.Options{})
	plan := &testPlan{version: "v", specs: map[string]*isobar.Service{}, assignments: map[string]*isobar.Assignment{}}
	names := make([]string, 100)
	for i := range names {
		names[i] = fmt.Sprintf("service-%d", i)
		serve(names[i], 1)(plan)
	}
	set := builder.Build(plan, nil)
	server.Publish(set)
	ctx, cancel := context.WithCancel(b.Context())
	var got, running sync.WaitGroup
	got.Add(streams)
	for i := range streams {
		s := kind
		s.ctx, s.next, s.names, s.got = ctx, make(chan []byte, 1), slices.Clone(names), &got
		s.next <- s.first(fmt.Sprintf("region/zone-%d", i%10))
		running.Go(func() { _ = server.Serve(&s, xds.Method{Delta: s.delta}) })
	}
	got.Wait()
	port := 1
	for b.Loop() {
		port = port%50_000 + 1
		plan = &testPlan{version: "v", specs: plan.specs, assignments: maps.Clone(plan.assignments)}
		serve(names[port%len(names)], port)(plan)
		set = builder.Build(plan, set)
		got.Add(streams)
		server.Publish(set)
		got.Wait()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*streams), "ns/push")
	cancel()
	running.Wait()
	server.Stop()
}
