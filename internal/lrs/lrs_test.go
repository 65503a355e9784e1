package lrs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

func every(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// pass lets virtual time go by.
func pass(d time.Duration) { <-time.After(d) }

func names(n ...string) func() []string { return func() []string { return n } }

// An hour of reports at 10 s, collected every 5 s, into a load table.
func TestAnHourOfReports(t *testing.T) {
	inBubble(t, lrs.Options{Interval: every(10 * time.Second), Services: names("checkout")}, func(h *harness) {
		c, first := h.greet(grpcNode())
		if got := first.GetLoadReportingInterval().AsDuration(); got != 10*time.Second || !first.GetSendAllClusters() {
			t.Fatalf("first response %v", first)
		}
		tab := load.NewTable(load.Settings{Interval: 10 * time.Second}, nil, time.Now())
		reports := 0
		for i := range 720 {
			pass(5 * time.Second)
			if i%2 == 1 {
				c.report(stats("checkout", 1000, 10*time.Second))
			}
			synctest.Wait()
			windows := h.srv.Collect(time.Now())
			if len(windows) != 1 || windows[0].Node.ID != "node-1" || windows[0].Node.Agent != load.AgentGRPC || !windows[0].Closed.IsZero() {
				t.Fatalf("windows %+v", windows)
			}
			reports += len(windows[0].Reports)
			tab.Merge(windows)
			tab.Snapshot(time.Now())
		}
		if reports != 360 {
			t.Errorf("%d reports, want 360", reports)
		}
		src := tab.Snapshot(time.Now()).Service("checkout").Source(isobar.MustLocality("us-east/a"))
		if src == nil || src.Demand < 99.9 || src.Demand > 100.1 {
			t.Errorf("source %+v, want a demand of 100", src)
		}
		c.cancel()
		synctest.Wait()
		w := h.srv.Collect(time.Now())
		if len(w) != 1 || w[0].Closed.IsZero() {
			t.Errorf("windows after the end %+v, want one that is closed", w)
		}
		if w := h.srv.Collect(time.Now()); len(w) != 0 {
			t.Errorf("a closed stream came twice: %+v", w)
		}
	})
}

// Messages that no client can mean end the stream.
func TestImpossibleMessages(t *testing.T) {
	expect := func(t *testing.T, c *client, code codes.Code, text string) {
		t.Helper()
		_, err := c.stream.Recv()
		if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), text) {
			t.Errorf("ended with %v, want %v naming %q", err, code, text)
		}
		c.cancel()
	}
	inBubble(t, lrs.Options{}, func(h *harness) {
		c := h.open()
		n := grpcNode()
		n.Locality.Zone = strings.Repeat("z", 300)
		c.send(&loadstatsv3.LoadStatsRequest{Node: n})
		expect(t, c, codes.InvalidArgument, "node.locality.zone")

		ok, _ := h.greet(grpcNode())
		ok.send(&loadstatsv3.LoadStatsRequest{ClusterStats: slices.Repeat([]*endpointv3.ClusterStats{{ClusterName: "x"}}, 20_001)})
		expect(t, ok, codes.InvalidArgument, "cluster_stats")
	})
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (rawCodec) Unmarshal([]byte, any) error   { return nil }
func (rawCodec) Name() string                  { return "proto" }

func TestMalformedBytesEndTheStreamOnly(t *testing.T) {
	inBubble(t, lrs.Options{}, func(h *harness) {
		good, _ := h.greet(grpcNode())
		desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
		raw, err := h.conn.NewStream(h.t.Context(), desc, loadstatsv3.LoadReportingService_StreamLoadStats_FullMethodName, grpc.ForceCodec(rawCodec{}))
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.SendMsg([]byte{0xff, 0xff, 0xff}); err != nil {
			t.Fatal(err)
		}
		var ignored []byte
		if err := raw.RecvMsg(&ignored); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "unmarshal") {
			t.Errorf("ended with %v, want a status that says why", err)
		}
		good.report(stats("checkout", 5, time.Second))
		synctest.Wait()
		if w := h.srv.Collect(time.Now()); len(w) != 1 || len(w[0].Reports) != 1 {
			t.Errorf("windows %+v, want the report of the other stream", w)
		}
	})
}

func TestBadEntriesAreNamed(t *testing.T) {
	reg := prometheus.NewRegistry()
	inBubble(t, lrs.Options{Services: names("checkout"), Registerer: reg}, func(h *harness) {
		c, _ := h.greet(grpcNode())
		bad := stats("checkout", 1<<63, time.Second)
		c.report(bad, stats("nobody knows it", 5, time.Second), stats("checkout", 7, time.Second))
		synctest.Wait()
		w := h.srv.Collect(time.Now())
		if len(w) != 1 || len(w[0].Reports) != 1 || len(w[0].Reports[0].Services) != 1 || w[0].Reports[0].Services[0].Localities[0].Issued != 7 {
			t.Fatalf("windows %+v, want the good entry only", w)
		}
		if got := w[0].Reports[0].Refused; !slices.Equal(got, []string{"checkout"}) {
			t.Errorf("refused %q, want what is known and can't be true", got)
		}
		clients := h.srv.Clients()
		if len(clients) != 1 {
			t.Fatalf("clients %+v", clients)
		}
		got := clients[0]
		if got.Rejected != 1 || !strings.Contains(got.LastReason, "checkout: total_issued_requests") || got.Reports != 1 || got.Node.ID != "node-1" ||
			!got.LastReport.Equal(time.Now()) || got.Since.After(got.LastReport) || got.Interval != lrs.DefaultInterval || got.UserAgent != "gRPC Go" {
			t.Errorf("client %+v", got)
		}
	})
	want := map[string]float64{
		"isobar_lrs_rejected_entries_total": 1, "isobar_lrs_unknown_service_entries_total": 1, "isobar_lrs_reports_total": 1, "isobar_lrs_streams": 0,
	}
	for name, value := range want {
		if got := testhelp.Metric(t, reg, name); got != value {
			t.Errorf("%s = %v, want %v", name, got, value)
		}
	}
}

// A collector that stands still loses resolution, not requests, and no memory.
func TestSlowCollector(t *testing.T) {
	inBubble(t, lrs.Options{Interval: every(time.Second)}, func(h *harness) {
		c, _ := h.greet(grpcNode())
		for range 1000 {
			pass(time.Second)
			c.report(stats("checkout", 10, time.Second))
		}
		synctest.Wait()
		w := h.srv.Collect(time.Now())
		if len(w) != 1 || len(w[0].Reports) > 4 {
			t.Fatalf("%d windows of %d reports, want at most 4 in one", len(w), len(w[0].Reports))
		}
		issued, length := uint64(0), time.Duration(0)
		for _, r := range w[0].Reports {
			issued += r.Services[0].Localities[0].Issued
			length += r.Services[0].Interval
		}
		if issued != 10_000 || length != 1000*time.Second {
			t.Errorf("%d requests in %v, want 10000 in 1000s", issued, length)
		}
	})
}

func TestManyStreamsAtOnce(t *testing.T) {
	inBubble(t, lrs.Options{}, func(h *harness) {
		const n = 50
		done := make(chan struct{})
		for range n {
			go func() {
				c, _ := h.greet(grpcNode())
				for range 20 {
					pass(time.Second)
					c.report(stats("checkout", 1, time.Second))
				}
				_ = c.stream.CloseSend()
				_, _ = c.stream.Recv()
				c.cancel()
				done <- struct{}{}
			}()
		}
		issued, closed := uint64(0), 0
		ids := map[load.StreamID]bool{}
		for range 30 {
			pass(700 * time.Millisecond)
			for _, w := range h.srv.Collect(time.Now()) {
				ids[w.Stream] = true
				if !w.Closed.IsZero() {
					closed++
				}
				for _, r := range w.Reports {
					issued += r.Services[0].Localities[0].Issued
				}
			}
			h.srv.Clients()
		}
		for range n {
			<-done
		}
		synctest.Wait()
		for _, w := range h.srv.Collect(time.Now()) {
			closed++
			for _, r := range w.Reports {
				issued += r.Services[0].Localities[0].Issued
			}
		}
		if issued != 20*n || closed != n || len(ids) != n {
			t.Errorf("%d requests, %d ends, %d streams; want %d, %d, %d", issued, closed, len(ids), 20*n, n, n)
		}
	})
}

// The load of an Envoy whose own cluster names the DNS name of a Kubernetes Service counts
// for the service, unless a service has that name.
func TestLoadByAlias(t *testing.T) {
	services := []string{"checkout.shop:80", "cart.shop:80", "cart.shop.svc:80"}
	inBubble(t, lrs.Options{Services: func() []string { return services }, ReportBurst: -1}, func(h *harness) {
		c, _ := h.greet(node("envoy"))
		defer c.cancel()
		for _, name := range []string{"checkout.shop.svc.cluster.local:80", "cart.shop.svc:80"} {
			cs := stats("outbound", 10, 5*time.Second)
			cs.ClusterServiceName = name
			c.send(&loadstatsv3.LoadStatsRequest{ClusterStats: []*endpointv3.ClusterStats{cs}})
			synctest.Wait()
		}
		var got []string
		for _, w := range h.srv.Collect(time.Now()) {
			for _, r := range w.Reports {
				for _, s := range r.Services {
					got = append(got, s.Service)
				}
			}
		}
		if want := []string{"checkout.shop:80", "cart.shop.svc:80"}; !slices.Equal(got, want) {
			t.Errorf("load of %q, want %q", got, want)
		}
		if unknown := h.srv.Unknown(); len(unknown) > 0 {
			t.Errorf("unknown clusters %q", unknown)
		}
	})
}

// Clusters that are no services are named for some minutes, but for the cluster
// by which Envoys reach the server. Their number is bounded.
func TestUnknownClusters(t *testing.T) {
	registry := prometheus.NewRegistry()
	opts := lrs.Options{
		Services: func() []string { return []string{"checkout"} }, ManagementCluster: "isobar",
		Registerer: registry, ReportBurst: -1,
	}
	inBubble(t, opts, func(h *harness) {
		c, _ := h.greet(node("envoy"))
		defer c.cancel()
		report := func(clusters ...string) {
			m := &loadstatsv3.LoadStatsRequest{}
			for _, name := range clusters {
				m.ClusterStats = append(m.ClusterStats, stats(name, 10, 5*time.Second))
			}
			c.send(m)
			synctest.Wait()
		}
		named := func(want ...string) {
			t.Helper()
			if got := h.srv.Unknown(); !slices.Equal(got, want) {
				t.Errorf("unknown clusters %q, want %q", got, want)
			}
		}
		report("checkout", "isobar")
		named()
		report("isobar", "chekout", "checkout", "billing")
		named("billing", "chekout")
		if n := testhelp.Series(t, registry, "isobar_lrs_unknown_service_entries_total")[""]; n != 2 {
			t.Errorf("%v entries on unknown services are counted, want 2", n)
		}
		time.Sleep(4 * time.Minute) //nolint:forbidigo // virtual time
		report("billing")
		time.Sleep(2 * time.Minute) //nolint:forbidigo // virtual time
		named("billing")
		var many []string
		for i := range 500 {
			many = append(many, fmt.Sprintf("cluster-%03d", i))
		}
		report(many...)
		if n := len(h.srv.Unknown()); n != 100 {
			t.Errorf("%d names are remembered, want 100", n)
		}
		time.Sleep(6 * time.Minute) //nolint:forbidigo // virtual time
		report("late")
		named("late")
	})
}
