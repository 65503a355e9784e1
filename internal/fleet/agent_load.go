package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar"
)

// Totals is what an agent has sent to a service, in requests.
type Totals struct {
	Issued     float64 // sent to a locality, also where connections were refused
	Errors     float64 // of these, failed
	Dropped    float64 // dropped by the agent, as the assignment told it
	Unassigned float64 // without any locality to go to
	Sites      map[isobar.Locality]float64
}

// serviceCounts counts the load of one service, in fractions of requests. What is counted
// but not yet reported keeps its fraction, so that nothing gets lost by
// rounding.
type serviceCounts struct {
	totals  Totals
	landed  map[isobar.Locality]float64
	sites   map[isobar.Locality]*siteCounts // since the last report
	dropped map[string]float64              // since the last report, by category
}

type siteCounts struct {
	issued, errors float64
	refused        float64 // errors that were never issued
	rate           float64 // of the newest step, requests/s
}

func newServiceCounts() *serviceCounts {
	return &serviceCounts{
		landed:  make(map[isobar.Locality]float64),
		sites:   make(map[isobar.Locality]*siteCounts),
		dropped: make(map[string]float64),
	}
}

// advance counts the load until now, in steps. The caller holds the lock.
func (a *Agent) advance(now time.Time) {
	if a.advanced.IsZero() || a.opts.Demand == nil {
		a.advanced = now
		return
	}
	for a.advanced.Before(now) {
		step := min(a.opts.Step, now.Sub(a.advanced))
		for _, s := range a.services {
			a.flow(s, a.opts.Demand(s, a.advanced.Add(step/2)), step)
		}
		a.advanced = a.advanced.Add(step)
	}
}

// flow counts one step of one service at a rate in requests/s.
func (a *Agent) flow(service string, rate float64, step time.Duration) {
	l, seconds := a.counts[service], step.Seconds()
	for _, site := range l.sites {
		site.rate = 0
	}
	if rate <= 0 {
		return
	}
	pass := rate
	if ap := a.assigned[service]; ap != nil {
		for _, d := range ap.cla.GetPolicy().GetDropOverloads() {
			ratio, _ := dropRatio(d)
			l.dropped[d.GetCategory()] += pass * ratio * seconds
			l.totals.Dropped += pass * ratio * seconds
			pass *= 1 - ratio
		}
	}
	shares := a.split(service)
	if len(shares) == 0 {
		l.totals.Unassigned += pass * seconds
		return
	}
	for _, loc := range slices.SortedFunc(maps.Keys(shares), isobar.Locality.Compare) {
		a.land(service, l, loc, pass*shares[loc], seconds)
	}
}

func (a *Agent) land(service string, l *serviceCounts, loc isobar.Locality, rate, seconds float64) {
	site := l.sites[loc]
	if site == nil {
		site = new(siteCounts)
		l.sites[loc] = site
	}
	n := rate * seconds
	l.totals.Issued += n
	l.landed[loc] += n
	fate := Served
	if a.opts.Landing != nil {
		fate = a.opts.Landing(service, loc)
	}
	if fate != Served {
		l.totals.Errors += n
	}
	if fate == Refused {
		site.refused += n
		return
	}
	site.rate = rate
	site.issued += n
	if fate != Served {
		site.errors += n
	}
}

// stats takes what was counted since the last report, as counters. Services
// with nothing to tell are left out, as real clients do.
func (a *Agent) stats(measured time.Duration, byEndpoint bool) []*endpointv3.ClusterStats {
	var out []*endpointv3.ClusterStats
	for _, s := range a.services {
		if cs := a.serviceStats(s, byEndpoint); cs != nil {
			cs.LoadReportInterval = protoDuration(measured)
			out = append(out, cs)
		}
	}
	return out
}

func (a *Agent) serviceStats(service string, byEndpoint bool) *endpointv3.ClusterStats {
	l := a.counts[service]
	cs := &endpointv3.ClusterStats{ClusterName: service}
	for _, loc := range slices.SortedFunc(maps.Keys(l.sites), isobar.Locality.Compare) {
		if ls := a.siteStats(service, loc, l.sites[loc], byEndpoint); ls != nil {
			cs.UpstreamLocalityStats = append(cs.UpstreamLocalityStats, ls)
		}
	}
	for _, category := range slices.Sorted(maps.Keys(l.dropped)) {
		n := takeWhole(l.dropped, category)
		if n == 0 {
			continue
		}
		cs.DroppedRequests = append(cs.DroppedRequests, &endpointv3.ClusterStats_DroppedRequests{Category: category, DroppedCount: n})
		cs.TotalDroppedRequests += n // the total of Envoy and of gRPC includes the categories
	}
	if len(cs.GetUpstreamLocalityStats()) == 0 && len(cs.GetDroppedRequests()) == 0 {
		return nil
	}
	return cs
}

func (a *Agent) siteStats(service string, loc isobar.Locality, site *siteCounts, byEndpoint bool) *endpointv3.UpstreamLocalityStats {
	issued := uint64(site.issued + wholeSlack)
	errors := min(uint64(site.errors+wholeSlack), issued)
	latency := defaultLatencyMS
	if a.opts.LatencyMS != nil {
		latency = a.opts.LatencyMS(service, loc)
	}
	inProgress := uint64(site.rate*latency/1000 + 0.5)
	refused := uint64(site.refused + wholeSlack)
	if issued == 0 && inProgress == 0 && refused == 0 {
		return nil
	}
	site.issued -= float64(issued)
	site.errors -= float64(errors)
	site.refused -= float64(refused)
	ls := &endpointv3.UpstreamLocalityStats{
		Locality:                protoLocality(loc),
		TotalIssuedRequests:     issued,
		TotalSuccessfulRequests: issued - errors,
		TotalErrorRequests:      errors + refused,
		TotalRequestsInProgress: inProgress,
	}
	if ap := a.assigned[service]; ap != nil {
		a.describe(ls, ap.cla, loc, byEndpoint)
	}
	if a.opts.Utilization != nil && issued > errors {
		n := issued - errors
		ls.ApplicationUtilization = &endpointv3.UnnamedEndpointLoadMetricStats{
			NumRequestsFinishedWithMetric: n,
			TotalMetricValue:              float64(n) * a.opts.Utilization(service, loc),
		}
	}
	return ls
}

// describe adds the priority and, when asked for, the endpoints: requests are
// spread over them by weight, what is left over goes to the first.
func (a *Agent) describe(ls *endpointv3.UpstreamLocalityStats, cla *endpointv3.ClusterLoadAssignment, loc isobar.Locality, byEndpoint bool) {
	for _, le := range cla.GetEndpoints() {
		if localityOf(le) != loc {
			continue
		}
		ls.Priority = le.GetPriority()
		if byEndpoint {
			ls.UpstreamEndpointStats = endpointStats(le, ls)
		}
		return
	}
}

func endpointStats(le *endpointv3.LocalityLbEndpoints, ls *endpointv3.UpstreamLocalityStats) []*endpointv3.UpstreamEndpointStats {
	var sum uint64
	for _, ep := range le.GetLbEndpoints() {
		sum += uint64(hostWeight(ep))
	}
	if sum == 0 {
		return nil
	}
	left := [3]uint64{ls.GetTotalIssuedRequests(), ls.GetTotalErrorRequests(), ls.GetTotalSuccessfulRequests()}
	out := make([]*endpointv3.UpstreamEndpointStats, len(le.GetLbEndpoints()))
	for i := len(out) - 1; i >= 0; i-- {
		ep := le.GetLbEndpoints()[i]
		part := left // of issued, errors, successes
		if i > 0 {
			for j, n := range []uint64{ls.GetTotalIssuedRequests(), ls.GetTotalErrorRequests(), ls.GetTotalSuccessfulRequests()} {
				part[j] = n * uint64(hostWeight(ep)) / sum
				left[j] -= part[j]
			}
		}
		out[i] = &endpointv3.UpstreamEndpointStats{
			Address:                 ep.GetEndpoint().GetAddress(),
			TotalIssuedRequests:     part[0],
			TotalErrorRequests:      part[1],
			TotalSuccessfulRequests: part[2],
		}
	}
	return out
}

// wholeSlack lets sums that miss a whole number by rounding count as it.
const wholeSlack = 1e-6

// takeWhole takes the whole requests out of a counter and leaves the fraction.
func takeWhole(counters map[string]float64, key string) uint64 {
	n := uint64(counters[key] + wholeSlack)
	counters[key] -= float64(n)
	return n
}

// split is how the demand for a service spreads over localities now. The
// caller holds the lock and must not change the map.
func (a *Agent) split(service string) map[isobar.Locality]float64 {
	ap := a.assigned[service]
	switch {
	case ap == nil:
		return nil
	case a.opts.Split != nil:
		return a.opts.Split(ap.cla)
	}
	cut := make([]bool, len(ap.localities))
	for i, l := range ap.localities {
		if a.opts.Landing != nil {
			fate := a.opts.Landing(service, l)
			cut[i] = fate == Unconnected || fate == Refused && a.opts.Kind == KindGRPC
		}
	}
	if ap.shares == nil || !slices.Equal(cut, ap.cut) {
		ap.cut, ap.shares = cut, predict(ap, cut, a.opts.Kind)
	}
	return ap.shares
}

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
