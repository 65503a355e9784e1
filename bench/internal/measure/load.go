package measure

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/bench/internal/fleet"
	"github.com/isobar-xds/isobar/bench/internal/process"
	"github.com/isobar-xds/isobar/bench/internal/rawclient"
)

const lrsMethod = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"

// Load is a scenario in which all streams report load as fast as the server
// takes it.
type Load struct {
	Clusters      int
	Endpoints     bool // with statistics by endpoint
	Nodes         bool // with the node of an Envoy in every report
	Streams       int
	PerConnection int
	Reports       int // in a round
	Servers       []string
}

// Name is the scenario's name in results.
func (l *Load) Name() string {
	detail := "localities"
	if l.Endpoints {
		detail = "endpoints"
	}
	if l.Nodes {
		detail += "/nodes"
	}
	return fmt.Sprintf("Report/clusters=%d/detail=%s", l.Clusters, detail)
}

// reporters is all clients of one server.
type reporters struct {
	process *process.Process
	alone   process.Memory // before a client connects
	conns   []*rawclient.Conn
	answers chan struct{}
	failed  chan error
}

func newReporters(streams int) *reporters {
	return &reporters{answers: make(chan struct{}, streams), failed: make(chan error, streams)}
}

// Message implements rawclient.Handler: the answer to the first message.
func (r *reporters) Message(int, []byte) ([]byte, error) {
	r.answers <- struct{}{}
	return nil, nil
}

// Run measures all servers, in turn.
func (l *Load) Run(ctx context.Context, rounds int, report func(Result)) error {
	body, err := proto.Marshal(l.report())
	if err != nil {
		return err
	}
	var all []*reporters
	defer func() {
		for _, r := range all {
			r.close()
		}
	}()
	for _, kind := range l.Servers {
		r, err := l.start(ctx, kind)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		all = append(all, r)
		if err := l.idle(r, "connected", report); err != nil {
			return err
		}
	}
	for round := range rounds + 1 {
		for _, r := range all {
			result, err := l.round(r, body)
			if err != nil {
				return fmt.Errorf("%s: %w", r.process.Kind, err)
			}
			if round > 0 { // the first warms up
				report(result)
			}
		}
	}
	for _, r := range all {
		if err := l.idle(r, "reported", report); err != nil {
			return err
		}
	}
	return nil
}

// idle reports what a stream takes that has nothing to say now. What clients
// reported last is part of it.
func (l *Load) idle(r *reporters, after string, report func(Result)) error {
	now, err := r.process.Memory()
	if err != nil {
		return fmt.Errorf("%s: %w", r.process.Kind, err)
	}
	report(Result{
		Name:   fmt.Sprintf("Idle%s/after=%s/server=%s", l.Name(), after, r.process.Kind),
		N:      int64(l.Streams),
		Values: perStream(now, r.alone, l.Streams),
	})
	return nil
}

func (l *Load) start(ctx context.Context, kind string) (*reporters, error) {
	p, err := process.Start(ctx, kind)
	if err != nil {
		return nil, err
	}
	r := newReporters(l.Streams)
	r.process = p
	if r.alone, err = p.Memory(); err != nil {
		r.close()
		return nil, err
	}
	hello := node
	if l.Nodes {
		hello = envoyNode
	}
	if err := r.dial(ctx, p.Address, l.Streams, l.PerConnection, hello); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// dial opens the streams, and waits until each was told what to report.
func (r *reporters) dial(ctx context.Context, address string, streams, perConnection int, nodeOf func(i int) *corev3.Node) error {
	for first := 0; first < streams; first += perConnection {
		hello := func(stream int) []byte {
			n := nodeOf(first + stream)
			n.ClientFeatures = []string{"envoy.lrs.supports_send_all_clusters"}
			b, err := proto.Marshal(&loadstatsv3.LoadStatsRequest{Node: n})
			if err != nil {
				panic(err) // made of plain strings
			}
			return b
		}
		conn, err := rawclient.Dial(ctx, address, lrsMethod, perConnection, hello, r)
		if err != nil {
			return err
		}
		r.conns = append(r.conns, conn)
		go func() {
			if err := conn.Run(); !rawclient.Ended(err) {
				r.failed <- err
			}
		}()
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for range streams {
		select {
		case <-r.answers:
		case err := <-r.failed:
			return err
		case <-timer.C:
			return fmt.Errorf("no answer to all streams within %v", patience)
		}
	}
	return nil
}

func (r *reporters) close() {
	r.hangUp()
	_ = r.process.Stop()
}

func (r *reporters) hangUp() {
	for _, c := range r.conns {
		_ = c.Close()
	}
}

// round has every stream report once, again and again; as in a fleet, the
// server has dealt with a report before the same client sends the next one.
func (l *Load) round(r *reporters, body []byte) (Result, error) {
	before, err := r.process.Quiet()
	if err != nil {
		return Result{}, err
	}
	turn := make([]rawclient.Message, l.PerConnection)
	for s := range turn {
		turn[s] = rawclient.Message{Stream: s, Body: body}
	}
	n := int64(0)
	for range max(1, l.Reports/l.Streams) {
		for _, c := range r.conns {
			if err := c.Send(turn); err != nil {
				return Result{}, err
			}
		}
		n += int64(l.Streams)
		if err := l.await(r, before.Counted+n); err != nil {
			return Result{}, err
		}
	}
	after, err := r.process.Quiet()
	if err != nil {
		return Result{}, err
	}
	per := float64(after.CPU-before.CPU) / float64(n)
	return Result{Name: l.Name() + "/server=" + r.process.Kind, N: n, Values: []Value{
		{per, "cpu-ns/report"}, {1e9 / per, "reports/core-s"}, {float64(len(body)), "B/report"},
	}}, nil
}

// await waits until the server has counted that many reports.
func (l *Load) await(r *reporters, want int64) error {
	for begun := time.Now(); ; {
		now, err := r.process.Stats()
		if err != nil || now.Counted >= want {
			return err
		}
		select {
		case err := <-r.failed:
			return err
		case <-time.After(awaitEvery):
		}
		if time.Since(begun) > patience {
			return fmt.Errorf("%d of %d reports within %v", now.Counted, want, patience)
		}
	}
}

const awaitEvery = 2 * time.Millisecond

// envoyNode is as large as the node of Envoy 1.40, which names what it is built
// with and comes with every load report.
func envoyNode(i int) *corev3.Node {
	n := node(i)
	n.UserAgentName = "envoy"
	n.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{}}
	for e := range 470 {
		kind := fmt.Sprintf("envoy.filters.some_category_%02d", e%60)
		n.Extensions = append(n.Extensions, &corev3.Extension{
			Name: fmt.Sprintf("%s.extension_%03d", kind, e), Category: kind,
			TypeUrls: []string{fmt.Sprintf("envoy.extensions.filters.some.v3.Extension%03d", e)},
		})
	}
	return n
}

// report is what a client of all clusters sends.
func (l *Load) report() *loadstatsv3.LoadStatsRequest {
	m := &loadstatsv3.LoadStatsRequest{}
	if l.Nodes {
		m.Node = envoyNode(0)
	}
	for c := range l.Clusters {
		cs := &endpointv3.ClusterStats{
			ClusterName: fleet.Name(c), LoadReportInterval: durationpb.New(5 * time.Second),
			UpstreamLocalityStats: make([]*endpointv3.UpstreamLocalityStats, 0, fleet.Localities),
		}
		for i, lw := range fleet.Assignments(c, 0)[0].Priorities[0] {
			ls := &endpointv3.UpstreamLocalityStats{
				Locality:                &corev3.Locality{Region: lw.Locality.Region, Zone: lw.Locality.Zone},
				TotalIssuedRequests:     uint64(1000 + 10*c + i),
				TotalSuccessfulRequests: uint64(990 + 10*c),
				TotalErrorRequests:      3,
				TotalRequestsInProgress: uint64(5 + i),
			}
			if l.Endpoints {
				for _, e := range lw.Endpoints {
					ls.UpstreamEndpointStats = append(ls.UpstreamEndpointStats, endpointStats(e.Address))
				}
			}
			cs.UpstreamLocalityStats = append(cs.UpstreamLocalityStats, ls)
		}
		m.ClusterStats = append(m.ClusterStats, cs)
	}
	return m
}

func endpointStats(address string) *endpointv3.UpstreamEndpointStats {
	host, _, _ := strings.Cut(address, ":")
	return &endpointv3.UpstreamEndpointStats{
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 8080},
		}}},
		TotalIssuedRequests: 52, TotalSuccessfulRequests: 50, TotalErrorRequests: 1, TotalRequestsInProgress: 1,
	}
}
