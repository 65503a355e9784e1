package loadgen

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
)

const lrsMethod = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"

// Fields of load reports.
const (
	fieldReportNode  = 1
	fieldReportStats = 2

	fieldStatsCluster    = 1
	fieldStatsLocalities = 2
	fieldStatsDropped    = 3
	fieldStatsInterval   = 4

	fieldLocality   = 1
	fieldSucceeded  = 2
	fieldInProgress = 3
	fieldIssued     = 8

	fieldSeconds = 1
	fieldNanos   = 2
)

// responseTime is behind the gauge of requests in progress.
const responseTime = 10 * time.Millisecond

// report keeps a load reporting stream open until ctx ends.
func (c *client) report(ctx context.Context, conn *grpc.ClientConn) {
	c.again(ctx, func() error { return c.reporting(ctx, conn) })
}

// reporter is one load reporting stream. What the server says is received in
// one goroutine, reports are sent by a timer.
type reporter struct {
	client *client
	stream grpc.ClientStream

	mu    sync.Mutex
	ended bool
	timer *time.Timer
	every time.Duration // 0: the server has not said yet
	only  []string      // clusters to report on; nil = all
	since time.Time     // what the next report begins with
}

// reporting is one load reporting stream, until it ends.
func (c *client) reporting(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a report that waits for the server
	s, err := conn.NewStream(ctx, bidirectional, lrsMethod)
	if err != nil {
		return err
	}
	hello := protowire.AppendTag(nil, fieldReportNode, protowire.BytesType)
	if err := send(s, protowire.AppendBytes(hello, c.node)); err != nil {
		return err
	}
	r := &reporter{client: c, stream: s}
	defer r.stop()
	for {
		var m loadstatsv3.LoadStatsResponse
		if err := s.RecvMsg(&m); err != nil {
			return err
		}
		r.obey(&m, time.Now())
	}
}

// obey takes what the server wants to be told, and when.
func (r *reporter) obey(m *loadstatsv3.LoadStatsResponse, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	begun := r.every > 0
	r.every = max(minReportEvery, m.GetLoadReportingInterval().AsDuration())
	r.only = nil
	if !m.GetSendAllClusters() {
		r.only = append([]string{}, m.GetClusters()...)
	}
	if begun {
		return // from the next report on
	}
	r.since = now
	r.client.run.results.interval.Store(int64(r.every))
	// Clients that connected together report at different times nevertheless.
	r.timer = time.AfterFunc(rand.N(r.every)+1, r.tick) //nolint:gosec // jitter
}

func (r *reporter) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.timer != nil {
		r.timer.Stop()
	}
}

// tick sends a report, and asks for the next tick.
func (r *reporter) tick() {
	m, ok := r.next(time.Now())
	if !ok {
		return
	}
	if r.stream.SendMsg(frame(m)) != nil {
		return // the stream has ended, and its receiver knows why
	}
	r.client.run.results.reports.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended { // the server may have let the report wait
		r.timer.Reset(max(1, time.Until(r.since.Add(r.every))))
	}
}

// next encodes the next report; there is none on a stream that has ended.
func (r *reporter) next(now time.Time) (m []byte, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil, false
	}
	m = r.client.stats(now, now.Sub(r.since), r.only)
	r.since = now
	return m, true
}

// stats encodes a report on what the client would have sent since the last.
func (c *client) stats(now time.Time, over time.Duration, only []string) []byte {
	rateOf := c.run.opts.RateOf
	if rateOf == nil {
		if c.run.opts.Rate == 0 {
			return nil
		}
		rateOf = func(int, string, time.Time) float64 { return c.run.opts.Rate / float64(len(c.names)) }
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]byte, 0, 128*len(c.names))
	var one []byte
	for i, name := range c.names {
		a := c.assigned[i]
		if a == nil || len(a.shares) == 0 || (only != nil && !slices.Contains(only, name)) {
			continue
		}
		rate := rateOf(c.id, name, now)
		wanted := rate*over.Seconds() + c.carry[i]
		whole := math.Floor(max(0, wanted))
		c.carry[i] = wanted - whole
		if whole == 0 {
			continue
		}
		one = a.stats(one[:0], whole, rate, over)
		out = protowire.AppendTag(out, fieldReportStats, protowire.BytesType)
		out = protowire.AppendBytes(out, one)
	}
	return out
}

// stats appends the statistics of one cluster: requests as the assignment
// wants them, all of which succeed.
func (a *assignment) stats(b []byte, requests, rate float64, over time.Duration) []byte {
	b = protowire.AppendTag(b, fieldStatsCluster, protowire.BytesType)
	b = protowire.AppendString(b, a.service)
	issued := someOf(requests * a.pass)
	// A report may be on one request, which goes to a locality as often as the
	// shares say: rounded always in the same way, small shares would get none and
	// the server would see that a locality can't be reached. One draw for all of
	// them loses none.
	draw, sum, given := rand.Float64(), 0.0, 0.0 //nolint:gosec // no secret
	for _, s := range a.shares {
		sum += s.part
		upTo := math.Floor(min(1, sum+1e-9)*issued + draw)
		b = s.stats(b, uint64(upTo-given), uint64(rate*s.part*responseTime.Seconds()))
		given = upTo
	}
	if dropped := requests - issued; dropped > 0 {
		b = appendCount(b, fieldStatsDropped, uint64(dropped))
	}
	var d []byte
	d = appendCount(d, fieldSeconds, uint64(over/time.Second)) //nolint:gosec // positive
	d = appendCount(d, fieldNanos, uint64(over%time.Second))   //nolint:gosec // positive
	b = protowire.AppendTag(b, fieldStatsInterval, protowire.BytesType)
	return protowire.AppendBytes(b, d)
}

// someOf returns a whole number that on average is n >= 0.
func someOf(n float64) float64 {
	return math.Floor(n + rand.Float64()) //nolint:gosec // no secret
}

// stats appends the statistics of one locality.
func (s *share) stats(b []byte, issued, inProgress uint64) []byte {
	if issued == 0 {
		return b
	}
	counts := appendCount(make([]byte, 0, 32), fieldSucceeded, issued)
	counts = appendCount(counts, fieldInProgress, inProgress)
	counts = appendCount(counts, fieldIssued, issued)
	b = protowire.AppendTag(b, fieldStatsLocalities, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(protowire.SizeTag(fieldLocality)+len(s.locality)+len(counts))) //nolint:gosec // small
	b = protowire.AppendTag(b, fieldLocality, protowire.BytesType)
	b = append(b, s.locality...)
	return append(b, counts...)
}

func appendCount(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.VarintType)
	return protowire.AppendVarint(b, n)
}
