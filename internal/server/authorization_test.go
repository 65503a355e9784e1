package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// held are open streams of one client, each of which has had an answer. Each
// function waits for how its stream ends.
type held struct {
	ads  adsClient
	ends map[string]func() error
}

func (l *loopback) hold(ctx context.Context, conn *grpc.ClientConn, id string) *held {
	l.t.Helper()
	n := nodeIn(id, "us/a")
	ads, _, err := subscribe(ctx, conn, n, "checkout")
	if err != nil {
		l.t.Fatalf("%s: ads: %v", id, err)
	}
	lrs, err := loadstatsv3.NewLoadReportingServiceClient(conn).StreamLoadStats(ctx)
	if err == nil {
		_ = lrs.Send(&loadstatsv3.LoadStatsRequest{Node: n})
		_, err = lrs.Recv()
	}
	if err != nil {
		l.t.Fatalf("%s: lrs: %v", id, err)
	}
	hds, err := healthv3.NewHealthDiscoveryServiceClient(conn).StreamHealthCheck(ctx)
	if err == nil {
		_ = hds.Send(&healthv3.HealthCheckRequestOrEndpointHealthResponse{
			RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_HealthCheckRequest{HealthCheckRequest: &healthv3.HealthCheckRequest{
				Node: n, Capability: &healthv3.Capability{HealthCheckProtocols: []healthv3.Capability_Protocol{healthv3.Capability_TCP}},
			}},
		})
	}
	if err != nil {
		l.t.Fatalf("%s: hds: %v", id, err)
	}
	ops, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	ask := func() error {
		_ = ops.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		_, err := ops.Recv()
		return err
	}
	if err == nil {
		err = ask()
	}
	if err != nil {
		l.t.Fatalf("%s: reflection: %v", id, err)
	}
	return &held{ads: ads, ends: map[string]func() error{
		"ads": until(func() error { _, err := ads.Recv(); return err }),
		"lrs": until(func() error { _, err := lrs.Recv(); return err }),
		"hds": until(func() error { _, err := hds.Recv(); return err }),
		"ops": ask,
	}}
}

// until receives until that fails.
func until(receive func() error) func() error {
	return func() error {
		for {
			if err := receive(); err != nil {
				return err
			}
		}
	}
}

// TestIdentitiesReachOpenStreams: who loses a role or a locality when the file
// changes loses the streams that are open, and is told why; nobody else does.
func TestIdentitiesReachOpenStreams(t *testing.T) {
	ca := identitytest.NewCA(t)
	files := ca.Write(t.TempDir(), identitytest.Leaf{})
	path := filepath.Join(t.TempDir(), "isobar.yaml")
	write := func(identities string) {
		t.Helper()
		text := fmt.Sprintf("xds: {listen: \"127.0.0.1:0\", tls: {cert: %q, key: %q, client_ca: %q}, identities: [%s]}\n", files.Cert, files.Key, files.ClientCA, identities) +
			"admin: {listen: \"127.0.0.1:0\"}\nstop_spread: 0s\n" +
			"services:\n- name: checkout\n  localities: [{locality: us/a, endpoints: [\"10.0.0.1:80\"]}]\n"
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	const all = "roles: [client, checker, admin]"
	write("{match: stays.example, " + all + "}, {match: goes.example, " + all + "}, {match: moves.example, " + all + "}, {match: demoted.example, " + all + "}")
	s, log := serveFile(t, path)
	l := &loopback{t: t, server: s, log: log}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	clients := map[string]*held{}
	for _, name := range []string{"stays", "goes", "moves", "demoted"} {
		clients[name] = l.hold(ctx, l.dial(ca.Client(&identitytest.Leaf{DNS: []string{name + ".example"}})), name)
	}
	testhelp.Eventually(t, "all checkers", func() bool { return l.metric("isobar_hds_checkers", "") == 4 })

	write("{match: stays.example, " + all + "}, {match: moves.example, " + all + ", localities: [eu/*]}, {match: demoted.example, roles: [checker]}")
	testhelp.Eventually(t, "the streams that end", func() bool {
		return l.metric("isobar_xds_streams", "sotw") == 1 && l.metric("isobar_lrs_streams", "") == 1 && l.metric("isobar_hds_checkers", "") == 2
	})
	for name, want := range map[string]map[string]string{
		"goes": {
			"ads": "no identity in the configuration matches goes.example", "lrs": "no identity", "hds": "no identity", "ops": "no identity",
		},
		"moves":   {"ads": "locality not allowed, it may in eu/*", "lrs": "locality not allowed", "hds": "locality not allowed"},
		"demoted": {"ads": "may not act as client: role not allowed, it has checker", "lrs": "role not allowed", "ops": "may not act as admin"},
	} {
		for stream, says := range want {
			if s := status.Convert(clients[name].ends[stream]()); s.Code() != codes.PermissionDenied || !strings.Contains(s.Message(), says) {
				t.Errorf("%s, %s: %v", name, stream, s)
			}
		}
	}
	stays := clients["stays"].ads
	if err := stays.Send(&discoveryv3.DiscoveryRequest{TypeUrl: resource.ClusterURL, ResourceNames: []string{"checkout"}}); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stays.Recv()
		if err != nil {
			t.Fatalf("a stream that is still allowed: %v", err)
		}
		if m.GetTypeUrl() == resource.ClusterURL {
			break
		}
	}
	if err := clients["stays"].ends["ops"](); err != nil {
		t.Errorf("an operator who is still allowed: %v", err)
	}
	if err := clients["moves"].ends["ops"](); err != nil {
		t.Errorf("an operator's role has no locality: %v", err)
	}
}

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
