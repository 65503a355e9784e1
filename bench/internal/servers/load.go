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
)

// reportInterval is what clients are asked for.
const reportInterval = 5 * time.Second

// loadIsobar is Isobar's load report service. Its windows are collected
// whenever all streams have reported once, as in a server that ticks as often
// as its clients report.
type loadIsobar struct {
	grpc     *grpc.Server
	lrs      *lrs.Server
	streams  atomic.Int64
	received atomic.Int64
	tick     chan struct{} // capacity 1
}

func newLoadIsobar() *loadIsobar {
	names := fleet.Names(fleet.Clusters)
	s := &loadIsobar{
		lrs: lrs.New(lrs.Options{
			Interval: func() time.Duration { return reportInterval },
			Services: func() []string { return names },
			// All that a report can hold is read.
			EndpointGranularity: true,
			ReportBurst:         -1, // clients report as fast as they can
		}),
		tick: make(chan struct{}, 1),
	}
	s.grpc = grpc.NewServer(guarded(grpc.StreamInterceptor(s.watch))...)
	s.lrs.Register(s.grpc)
	go func() {
		for range s.tick {
			s.lrs.Collect(time.Now())
		}
	}()
	return s
}

// watch counts what a stream receives.
func (s *loadIsobar) watch(srv any, g grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	s.streams.Add(1)
	defer s.streams.Add(-1)
	return handle(srv, &countedStream{ServerStream: g, server: s})
}

type countedStream struct {
	grpc.ServerStream

	server *loadIsobar
	spoke  bool // the first message is no report
}

func (c *countedStream) RecvMsg(m any) error {
	err := c.ServerStream.RecvMsg(m)
	if err != nil || !c.spoke {
		c.spoke = true
		return err
	}
	if n := c.server.received.Add(1); n%c.server.streams.Load() == 0 {
		select {
		case c.server.tick <- struct{}{}:
		default:
		}
	}
	return nil
}

func (s *loadIsobar) Serve(l net.Listener) error { return s.grpc.Serve(l) }

func (s *loadIsobar) Change(int) error { return nil }

func (s *loadIsobar) Counted() int64 { return s.received.Load() }

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
