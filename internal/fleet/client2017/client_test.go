package client2017_test

import (
	"strings"
	"testing"

	endpointv2 "github.com/envoyproxy/go-control-plane/envoy/api/v2"
	corev2 "github.com/envoyproxy/go-control-plane/envoy/api/v2/core"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/api/v2/endpoint"
	loadstatsv2 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/fleet/client2017"
)

// What v2 has and 2017 had not is refused wherever it stands.
func TestOnlyFieldsOfThatTime(t *testing.T) {
	degraded := &endpointv2.ClusterLoadAssignment{ClusterName: "a", Endpoints: []*endpoint.LocalityLbEndpoints{{
		LbEndpoints: []*endpoint.LbEndpoint{{HealthStatus: corev2.HealthStatus_DEGRADED}},
	}}}
	for _, tc := range []struct {
		name string
		m    proto.Message
		want string // in the error; empty for none
	}{
		{"LoadStatsResponse", &loadstatsv2.LoadStatsResponse{Clusters: []string{"a"}, LoadReportingInterval: durationpb.New(1)}, ""},
		{"LoadStatsResponse", &loadstatsv2.LoadStatsResponse{SendAllClusters: true}, "LoadStatsResponse holds fields of a later time"},
		{"ClusterLoadAssignment", &endpointv2.ClusterLoadAssignment{ClusterName: "a"}, ""},
		{"ClusterLoadAssignment", degraded, "health_status is 5"},
		{"DiscoveryResponse", response(t, &endpointv2.ClusterLoadAssignment{ClusterName: "a"}), ""},
		{"DiscoveryResponse", response(t, degraded), "health_status is 5"},
		{"DiscoveryResponse", response(t, durationpb.New(1)), "a resource of type"},
		{"DiscoveryResponse", &endpointv2.DiscoveryResponse{ControlPlane: &corev2.ControlPlane{Identifier: "x"}}, "DiscoveryResponse holds"},
	} {
		data, err := proto.Marshal(tc.m)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client2017.Decode(tc.name, data)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%v: %v, want %q", tc.m, err, tc.want)
		}
	}
	if _, err := client2017.New("Secret"); err == nil {
		t.Error("there is a message that was not there")
	}
}

func response(t *testing.T, m proto.Message) *endpointv2.DiscoveryResponse {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return &endpointv2.DiscoveryResponse{VersionInfo: "1", Resources: []*anypb.Any{a}}
}
