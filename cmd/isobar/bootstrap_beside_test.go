package main

import (
	"encoding/json"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestGRPCFragmentIsReadByGRPC merges the fragment into the bootstrap file of
// another control plane and gives it to a real client: what is of the authority
// is asked of the server that the fragment names.
func TestGRPCFragmentIsReadByGRPC(t *testing.T) {
	n := &nodes{first: make(chan *corev3.Node, 1)}
	srv := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(srv, n)
	var merged map[string]any
	if err := json.Unmarshal(output(t, "grpc", "--beside", "--server", testhelp.Loopback(t, srv), "--node-id", "web-1", "--locality", "us-east/b"), &merged); err != nil {
		t.Fatal(err)
	}
	merged["xds_servers"] = []any{map[string]any{
		"server_uri": "127.0.0.1:1", "channel_creds": []any{map[string]any{"type": "insecure"}}, "server_features": []any{"xds_v3"},
	}}
	file, err := json.Marshal(merged)
	if err != nil {
		t.Fatal(err)
	}
	builder, err := xds.NewXDSResolverWithConfigForTesting(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	conn, err := grpc.NewClient("xds://isobar/checkout", grpc.WithResolvers(builder), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing was sent
	conn.Connect()
	select {
	case got := <-n.first:
		if got.GetId() != "web-1" || got.GetLocality().GetZone() != "b" {
			t.Errorf("the client calls itself %v", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("the client never came")
	}
}

// TestEnvoyFragmentIsValid reads the fragment as Envoy does a file.
func TestEnvoyFragmentIsValid(t *testing.T) {
	for _, args := range [][]string{{"--checks"}, nil} {
		file := output(t, append([]string{"envoy", "--beside", "--locality", "us-east/b", "--server", "isobar.example:18000"}, args...)...)
		asJSON, err := yaml.YAMLToJSON(file)
		if err != nil {
			t.Fatalf("%v\n%s", err, file)
		}
		var b bootstrapv3.Bootstrap
		if err := protojson.Unmarshal(asJSON, &b); err != nil {
			t.Fatalf("%v\n%s", err, file)
		}
		if err := b.ValidateAll(); err != nil {
			t.Errorf("%v\n%s", err, file)
		}
		if b.GetDynamicResources() != nil || b.GetClusterManager().GetLoadStatsConfig() == nil || (b.GetHdsConfig() != nil) != (args != nil) {
			t.Errorf("want load reports, health checks if asked for, and nothing of what the other control plane says:\n%s", file)
		}
		if c := b.GetStaticResources().GetClusters(); len(c) != 1 || c[0].GetName() != "isobar" {
			t.Errorf("clusters %v", c)
		}
	}
}
