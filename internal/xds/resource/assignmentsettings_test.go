package resource_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

func TestSettingsInThePolicy(t *testing.T) {
	for _, tt := range []struct {
		a    isobar.Assignment
		want string // the policy; empty = none
	}{
		{isobar.Assignment{ResourceTTL: time.Minute}, ``}, // it stands around the resource, not in it
		{isobar.Assignment{EndpointStaleAfter: 90 * time.Second}, `{"endpointStaleAfter": "90s"}`},
		{isobar.Assignment{WeightedPriorityHealth: true}, `{"weightedPriorityHealth": true}`},
		{
			isobar.Assignment{WeightedPriorityHealth: true, EndpointStaleAfter: 5500 * time.Millisecond, OverprovisioningFactor: 100},
			`{"weightedPriorityHealth": true, "endpointStaleAfter": "5.5s", "overprovisioningFactor": 100}`,
		},
	} {
		tt.a.Service = "s"
		m, err := resource.Assignment(&tt.a)
		if err != nil {
			t.Errorf("%+v: %v", tt.a, err)
			continue
		}
		var want *endpointv3.ClusterLoadAssignment_Policy
		if tt.want != "" {
			want = &endpointv3.ClusterLoadAssignment_Policy{}
			if err := protojson.Unmarshal([]byte(tt.want), want); err != nil {
				t.Fatal(err)
			}
		}
		if got := m.GetPolicy(); !proto.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%+v: policy %v, want %v", tt.a, got, want)
		}
	}
	if _, err := resource.Assignment(&isobar.Assignment{Service: "s", EndpointStaleAfter: -time.Second}); err == nil {
		t.Error("endpoints that are stale at once go out")
	}
}
