package lrs_test

import (
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
