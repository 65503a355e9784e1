package lrs_test

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev2 "github.com/envoyproxy/go-control-plane/envoy/api/v2/core"
	endpointv2 "github.com/envoyproxy/go-control-plane/envoy/api/v2/endpoint"
	loadstatsv2 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet/client2017"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// client2017 opens a stream of a client of that time.
func (h *harness) client2017() (c *client2017.Load, cancel context.CancelFunc) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	old := client2017.Client{Conn: h.conn, Node: client2017.Node{
		ID: "old-1", Cluster: "frontend", Locality: &client2017.Locality{Region: "us-east", Zone: "a"},
	}}
	c, err := old.Load(ctx)
	if err != nil {
		cancel()
		h.t.Fatal(err)
	}
	return c, cancel
}

// listen returns what the server says from now on.
func listen(t *testing.T, c *client2017.Load) <-chan client2017.LoadRequest {
	t.Helper()
	out := make(chan client2017.LoadRequest, 16)
	go func() {
		defer close(out)
		for {
			m, err := c.Receive()
			if err != nil {
				if status.Code(err) != codes.Canceled && status.Code(err) != codes.Unavailable {
					t.Errorf("a message that is not of that time: %v", err)
				}
				return
			}
			out <- m
		}
	}()
	return out
}

// counted is what a client of 2017 tells of a service: neither how long it
// counted nor what it issued.
func counted(service string, succeeded, errors, inProgress uint64) client2017.ClusterStats {
	return client2017.ClusterStats{ClusterName: service, Localities: []client2017.LocalityStats{{
		Locality: client2017.Locality{Region: "us-east", Zone: "b"}, Succeeded: succeeded, Errors: errors, InProgress: inProgress,
	}}}
}

func TestV2(t *testing.T) {
	inBubble(t, lrs.Options{Services: names("a"), EndpointGranularity: true}, func(h *harness) {
		ctx, cancel := context.WithCancel(h.t.Context())
		defer cancel()
		c, err := loadstatsv2.NewLoadReportingServiceClient(h.conn).StreamLoadStats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		hello := &corev2.Node{Id: "old-1", ClientFeatures: []string{rpc.FeatureSendAllClusters}}
		if err := c.Send(&loadstatsv2.LoadStatsRequest{Node: hello}); err != nil {
			t.Fatal(err)
		}
		want := &loadstatsv2.LoadStatsResponse{
			SendAllClusters: true, ReportEndpointGranularity: true, LoadReportingInterval: durationpb.New(lrs.DefaultInterval),
		}
		if got, err := c.Recv(); err != nil || !proto.Equal(got, want) {
			t.Errorf("first response %v, %v, want %v", got, err, want)
		}
		pass(5 * time.Second)
		report := &endpointv2.ClusterStats{ClusterName: "a", LoadReportInterval: durationpb.New(4 * time.Second)}
		if err := c.Send(&loadstatsv2.LoadStatsRequest{ClusterStats: []*endpointv2.ClusterStats{report}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w := h.srv.Collect(time.Now())
		if len(w) != 1 || len(w[0].Reports) != 1 || w[0].Reports[0].Services[0].Interval != 4*time.Second {
			t.Errorf("windows %+v, want a report over 4 s", w)
		}
		if got := h.srv.Clients(); len(got) != 1 || got[0].API != rpc.V2 {
			t.Errorf("clients %+v, want one that speaks v2", got)
		}
	})
}

// What is asked of a client of 2017 names its clusters and nothing that it does
// not know, and it waits until there is a first one.
func Test2017IsAskedForClusters(t *testing.T) {
	services := atomic.Pointer[[]string]{}
	services.Store(&[]string{})
	interval := atomic.Int64{}
	interval.Store(int64(5 * time.Second))
	opts := lrs.Options{
		Services: func() []string { return *services.Load() }, EndpointGranularity: true,
		Interval: func() time.Duration { return time.Duration(interval.Load()) },
	}
	inBubble(t, opts, func(h *harness) {
		c, cancel := h.client2017()
		defer cancel()
		said := listen(t, c)
		for _, step := range []struct {
			name     string
			services []string
			interval time.Duration
			want     []string // nil: nothing is said
		}{
			{"no service", nil, 5 * time.Second, nil},
			{"the first one", []string{"a"}, 5 * time.Second, []string{"a"}},
			{"another one", []string{"a", "b"}, 5 * time.Second, []string{"a", "b"}},
			{"one less does no harm", []string{"b"}, 5 * time.Second, nil},
			{"it comes back", []string{"a", "b"}, 5 * time.Second, nil},
			{"another interval", []string{"b"}, 7 * time.Second, []string{"b"}},
			{"none is left", nil, 7 * time.Second, nil},
		} {
			pass(time.Minute)
			services.Store(&step.services)
			interval.Store(int64(step.interval))
			h.srv.Refresh()
			synctest.Wait()
			var got client2017.LoadRequest
			select {
			case got = <-said:
			default:
			}
			want := client2017.LoadRequest{Clusters: step.want, Interval: client2017.Duration(step.interval)}
			if step.want == nil {
				want.Interval = 0
			}
			if !slices.Equal(got.Clusters, want.Clusters) || got.Interval != want.Interval {
				t.Errorf("%s: the client was told %v, want %v", step.name, got, want)
			}
		}
		if got := h.srv.Clients(); len(got) != 1 || got[0].API != rpc.V2017 {
			t.Errorf("clients %+v, want one of 2017", got)
		}
	})
}

// The reports of a client of 2017 make the right demand, from what it succeeded
// and failed with, what it has in progress, and when its reports come: at its
// first report, in steady state, and after it was told something new, when it
// starts to count from zero.
func Test2017Demand(t *testing.T) {
	services := atomic.Pointer[[]string]{}
	services.Store(&[]string{})
	opts := lrs.Options{Services: func() []string { return *services.Load() }, Interval: every(10 * time.Second)}
	inBubble(t, opts, func(h *harness) {
		c, cancel := h.client2017()
		defer cancel()
		said := listen(t, c)
		report := func(m client2017.ClusterStats) {
			t.Helper()
			if err := c.Report(m); err != nil {
				t.Fatal(err)
			}
		}
		tab := load.NewTable(load.Settings{Interval: 10 * time.Second}, nil, time.Now())
		landed := func() float64 {
			t.Helper()
			synctest.Wait()
			tab.Merge(h.srv.Collect(time.Now()))
			src := tab.Snapshot(time.Now()).Service("checkout").Source(isobar.MustLocality("us-east/a"))
			if src == nil {
				t.Fatal("the table knows nothing of the source")
			}
			return src.Raw
		}
		pass(time.Hour) // there is nothing to report on
		synctest.Wait()
		tab.Merge(h.srv.Collect(time.Now()))
		services.Store(&[]string{"checkout"})
		h.srv.Refresh()
		<-said

		pass(10 * time.Second)
		report(counted("checkout", 900, 100, 50))
		want(t, "after the first report", landed(), 100)
		pass(10 * time.Second)
		report(counted("checkout", 940, 10, 100)) // 50 more have been issued than ended
		want(t, "with more in progress", landed(), 100)
		pass(10 * time.Second)
		report(counted("checkout", 1080, 0, 20))
		want(t, "with less in progress", landed(), 100)

		// It is told of another service halfway: its counters restart.
		pass(5 * time.Second)
		services.Store(&[]string{"checkout", "search"})
		h.srv.Refresh()
		<-said
		pass(10 * time.Second)
		report(counted("checkout", 1000, 0, 20))
		want(t, "after it has been told anew", landed(), 100)

		// A report that was under way when it was told covers the time before.
		pass(9900 * time.Millisecond)
		services.Store(&[]string{"checkout", "search", "basket"})
		h.srv.Refresh()
		<-said
		pass(10 * time.Millisecond)
		report(counted("checkout", 990, 0, 20))
		want(t, "with a report that was under way", landed(), 100)
		pass(10 * time.Second)
		report(counted("checkout", 1000, 0, 20))
		want(t, "after that", landed(), 100)
	})
}

func want(t *testing.T, when string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.2 {
		t.Errorf("%s: %v requests/s, want %v", when, got, want)
	}
}
