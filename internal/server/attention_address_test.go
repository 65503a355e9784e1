package server_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// TestAttentionToLimitsOfOneAddress: what clients at one address may use is told as well while there is
// room: a fleet behind a load balancer has one address.
func TestAttentionToLimitsOfOneAddress(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "isobar.yaml")
	text := "xds: {listen: \"127.0.0.1:0\", admission: {max_connections: 10, name_megabytes: 16}}\nadmin: {listen: \"127.0.0.1:0\"}\nstop_spread: 0s\nservices: [{name: checkout, localities: [{locality: us/a, endpoints: [\"10.0.0.1:80\"]}]}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	kept := store.NewMemory()
	t.Cleanup(func() { _ = kept.Close() })
	s, _, stop := serveFileFrom(t, path, kept)
	t.Cleanup(stop)
	told := func(want string) {
		t.Helper()
		testhelp.Eventually(t, want, func() bool {
			w := heldWorld{Server: s, t: t}
			return strings.Contains(strings.Join(admin.AttentionTexts(w.status().Attention), "\n"), want)
		})
	}
	for range 4 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.XDSAddress())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
	}
	told("4 of 5 connections that one address may have are used by 127.0.0.1: raise xds.admission.max_connections")
	conn, err := grpc.NewClient(s.XDSAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for i := range 2 { // one after the other: a name takes more until it is answered
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		names := []string{"checkout"}
		for j := range 1_600 {
			names = append(names, fmt.Sprintf("name-%d-%d", i, j))
		}
		if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: nodeIn("many", "us/a"), TypeUrl: resource.EndpointsURL, ResourceNames: names}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	told("the names that clients of one address without certificate subscribe to take 2 of 2 MiB: raise xds.admission.name_megabytes")
}
