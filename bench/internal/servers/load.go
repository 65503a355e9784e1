package servers

import (
	"net"
	"sync/atomic"
	"time"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/bench/internal/fleet"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/wire"
)

// reportInterval is what clients are asked for.
const reportInterval = 5 * time.Second

// loadIsobar is Isobar's load report service; its windows are collected so
// often that each holds a report or two, as in a server that ticks as often as
// its clients report.
type loadIsobar struct {
	grpc *grpc.Server
	lrs  *lrs.Server
}

const collectEvery = 10 * time.Millisecond

func newLoadIsobar() *loadIsobar {
	names := fleet.Names(fleet.Clusters)
	s := &loadIsobar{
		grpc: grpc.NewServer(transport(grpc.ForceServerCodecV2(wire.ServerCodec()))...),
		lrs: lrs.New(lrs.Options{
			Interval: func() time.Duration { return reportInterval },
			Services: func() []string { return names },
		}),
	}
	s.lrs.Register(s.grpc)
	go func() {
		for now := range time.Tick(collectEvery) {
			s.lrs.Collect(now)
		}
	}()
	return s
}

func (s *loadIsobar) Serve(l net.Listener) error { return s.grpc.Serve(l) }

func (s *loadIsobar) Change(int) error { return nil }

func (s *loadIsobar) Counted() int64 {
	sum := int64(0)
	for _, c := range s.lrs.Clients() {
		sum += int64(c.Reports) //nolint:gosec // few
	}
	return sum
}

// loadSink receives reports and forgets them, decoded by the generated types
// or not at all.
type loadSink struct {
	loadstatsv3.UnimplementedLoadReportingServiceServer

	grpc    *grpc.Server
	decode  bool
	counted atomic.Int64
}

func newLoadSink(decode bool) *loadSink {
	s := &loadSink{grpc: grpc.NewServer(transport(grpc.ForceServerCodecV2(passThrough{}))...), decode: decode}
	loadstatsv3.RegisterLoadReportingServiceServer(s.grpc, s)
	return s
}

func (s *loadSink) Serve(l net.Listener) error { return s.grpc.Serve(l) }

func (s *loadSink) Change(int) error { return nil }

func (s *loadSink) Counted() int64 { return s.counted.Load() }

// StreamLoadStats answers the first message and counts the others.
func (s *loadSink) StreamLoadStats(g loadstatsv3.LoadReportingService_StreamLoadStatsServer) error {
	if _, err := g.Recv(); err != nil {
		return err
	}
	if err := g.Send(&loadstatsv3.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: durationpb.New(reportInterval)}); err != nil {
		return err
	}
	for {
		var m any = dropped{}
		if s.decode {
			m = &loadstatsv3.LoadStatsRequest{}
		}
		if err := g.RecvMsg(m); err != nil {
			return nil //nolint:nilerr // the client has gone
		}
		s.counted.Add(1)
	}
}
