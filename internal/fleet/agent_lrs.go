package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar"
)

// minReportInterval keeps an agent from flooding a server that asks for an
// interval of 0, as Envoy would.
const minReportInterval = 100 * time.Millisecond

// report runs one load reporting stream. Nothing is reported before the
// server's first response, which says what and how often; a later response
// replaces it and restarts the timer (grpc-go itself reads the first only).
func (a *Agent) report(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := loadstatsv3.NewLoadReportingServiceClient(a.opts.Conn).StreamLoadStats(ctx)
	if err != nil {
		return fmt.Errorf("open load reporting: %w", err)
	}
	if err := stream.Send(&loadstatsv3.LoadStatsRequest{Node: a.node()}); err != nil {
		return fmt.Errorf("open load reporting: %w", err)
	}
	config, err := stream.Recv()
	if err != nil {
		return err
	}
	line := newDelayLine[*loadstatsv3.LoadStatsRequest](a.opts.ReportDelay)
	configs := make(chan *loadstatsv3.LoadStatsResponse)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer cancel()
		return line.run(ctx, stream.Send)
	})
	g.Go(func() error {
		defer cancel()
		return a.produce(ctx, config, configs, line)
	})
	g.Go(func() error {
		defer cancel()
		for {
			next, err := stream.Recv()
			if err != nil {
				return err
			}
			if a.opts.Kind == KindGRPC {
				continue
			}
			select {
			case configs <- next:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
	return g.Wait()
}

// produce puts a report on the line at the end of every interval.
func (a *Agent) produce(
	ctx context.Context, config *loadstatsv3.LoadStatsResponse,
	configs <-chan *loadstatsv3.LoadStatsResponse, line *delayLine[*loadstatsv3.LoadStatsRequest],
) error {
	began := time.Now()
	a.mu.Lock()
	a.advance(began)
	a.dropUnreported()
	a.mu.Unlock()
	ticker := time.NewTicker(reportInterval(config))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case config = <-configs:
			ticker.Reset(reportInterval(config))
		case <-ticker.C:
			now := time.Now()
			if err := line.put(ctx, a.snapshot(now, now.Sub(began), config)); err != nil {
				return err
			}
			began = now
		}
	}
}

// dropUnreported starts the counters at zero: load before the first response
// is nobody's business. The caller holds the lock.
func (a *Agent) dropUnreported() {
	for _, l := range a.counts {
		clear(l.sites)
		clear(l.dropped)
	}
}

func (a *Agent) snapshot(now time.Time, measured time.Duration, config *loadstatsv3.LoadStatsResponse) *loadstatsv3.LoadStatsRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance(now)
	req := &loadstatsv3.LoadStatsRequest{ClusterStats: a.stats(measured, config.GetReportEndpointGranularity())}
	if a.opts.Kind == KindEnvoy {
		req.Node = a.node()
	}
	if !config.GetSendAllClusters() && len(config.GetClusters()) > 0 {
		req.ClusterStats = slices.DeleteFunc(req.GetClusterStats(), func(cs *endpointv3.ClusterStats) bool {
			return !slices.Contains(config.GetClusters(), cs.GetClusterName())
		})
	}
	return req
}

func reportInterval(config *loadstatsv3.LoadStatsResponse) time.Duration {
	return max(minReportInterval, config.GetLoadReportingInterval().AsDuration())
}

func protoDuration(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

func protoLocality(l isobar.Locality) *corev3.Locality {
	return &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
}
