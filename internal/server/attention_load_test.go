package server_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// inManyLocalities is a report of a client that sends to 800 localities.
func inManyLocalities() *loadstatsv3.LoadStatsRequest {
	c := &endpointv3.ClusterStats{ClusterName: "checkout", LoadReportInterval: durationpb.New(1e9)}
	for i := range 800 {
		c.UpstreamLocalityStats = append(c.UpstreamLocalityStats, &endpointv3.UpstreamLocalityStats{
			Locality: &corev3.Locality{Region: "us", Zone: fmt.Sprint(i)}, TotalIssuedRequests: 10, TotalSuccessfulRequests: 10,
		})
	}
	return &loadstatsv3.LoadStatsRequest{Node: nodeIn("many", "us/a"), ClusterStats: []*endpointv3.ClusterStats{c}}
}

// TestAttentionToTheLoadOfOneAddress asserts that a server tells how much memory the load of clients takes, and that
// those of one address take most of what they may.
func TestAttentionToTheLoadOfOneAddress(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "isobar.yaml")
	text := "xds: {listen: \"127.0.0.1:0\", admission: {report_megabytes: 8}}\nadmin: {listen: \"127.0.0.1:0\"}\nstop_spread: 0s\n" +
		"services: [{name: checkout, localities: [{locality: us/a, endpoints: [\"10.0.0.1:80\"]}]}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	kept := store.NewMemory()
	t.Cleanup(func() { _ = kept.Close() })
	s, log, stop := serveFileFrom(t, path, kept)
	t.Cleanup(stop)
	conn, err := grpc.NewClient(s.XDSAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	const want = "the load of the clients of one address without certificate takes 2 of 2 MiB; above this limit Isobar ignores the load of new ones: " +
		"raise xds.admission.report_megabytes, or give its clients certificates"
	streams := 0
	testhelp.Eventually(t, want, func() bool {
		if streams < 60 {
			stream, err := loadstatsv3.NewLoadReportingServiceClient(conn).StreamLoadStats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(inManyLocalities()); err != nil {
				t.Fatal(err)
			}
			streams++
		}
		w := heldWorld{Server: s, t: t}
		return strings.Contains(strings.Join(admin.AttentionTexts(w.status().Attention), "\n"), want)
	})
	testhelp.Eventually(t, "that some load is not kept", func() bool { return strings.Contains(log.String(), "load of clients was not kept") })
	resp, err := http.Get("http://" + s.AdminAddress() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, series := range []string{`isobar_load_memory_bytes [1-9]`, `isobar_load_refused_windows_total [1-9]`} {
		if !regexp.MustCompile(`(?m)^` + series).Match(body) {
			t.Errorf("no %s among the metrics", series)
		}
	}
}
