package server_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestReportsOfNonSubscribers: where reports count only on what is subscribed,
// the subscription may be another stream of the same locality, and counts for
// two minutes after it ended.
func TestReportsOfNonSubscribers(t *testing.T) {
	cfg := configuration(t)
	cfg.SubscribedOnly = true
	bubble.Test(t, func(t *testing.T) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		runLogged(t, cfg, kept, slog.New(slog.DiscardHandler), func(w *world) {
			s, err := loadstatsv3.NewLoadReportingServiceClient(w.conn).StreamLoadStats(w.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Send(&loadstatsv3.LoadStatsRequest{Node: nodeIn("reporter", "us/a")}); err != nil {
				t.Fatal(err)
			}
			// counts tells whether a report on 50 requests/s counts now.
			dropped := 0.0
			counts := func() bool {
				t.Helper()
				err := s.Send(&loadstatsv3.LoadStatsRequest{ClusterStats: []*endpointv3.ClusterStats{{
					ClusterName: "checkout", LoadReportInterval: durationpb.New(interval),
					UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
						Locality: nodeIn("", "us/b").GetLocality(), TotalIssuedRequests: 250, TotalSuccessfulRequests: 250,
					}},
				}}})
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				before := dropped
				dropped = testhelp.Metric(t, w.server.Metrics(), "isobar_lrs_unsubscribed_entries_total")
				return dropped == before
			}
			if counts() {
				t.Error("a report on what nobody subscribes to counts")
			}
			ctx, cancel := context.WithCancel(w.ctx)
			if _, _, err := subscribe(ctx, w.conn, nodeIn("far", "eu/a"), "checkout"); err != nil {
				t.Fatal(err)
			}
			if counts() {
				t.Error("a subscription from elsewhere lets a report count")
			}
			if _, _, err := subscribe(ctx, w.conn, nodeIn("near", "us/a"), "checkout"); err != nil {
				t.Fatal(err)
			}
			if !counts() {
				t.Error("a report on what the locality subscribes to does not count")
			}
			cancel()
			time.Sleep(time.Minute) //nolint:forbidigo // virtual time
			if !counts() {
				t.Error("a minute after the subscription ended the report does not count")
			}
			time.Sleep(2 * time.Minute) //nolint:forbidigo // virtual time
			if counts() {
				t.Error("three minutes after the subscription ended the report counts")
			}
		})
	})
}
