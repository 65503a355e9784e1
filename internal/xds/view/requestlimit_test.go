package view_test

import (
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// A limit of requests in progress is part of the cluster: it stays the same resource
// while the limit stays, and changes with it. Endpoints that fail are ejected for
// longer with a limit. What the user configures stays.
func TestRequestLimitInClusters(t *testing.T) {
	b := view.NewBuilder(view.Options{})
	base := isobar.OutlierBaseEjectionTime
	build := func(version string, limit uint32, previous *view.Set, change func(*isobar.Service)) (*view.Set, *view.Resource) {
		p := planOf(version, assignment("a", 1))
		p.limits = map[string]uint32{"a": limit}
		p.specs[0].RequestTimeout = isobar.RequestTimeout(time.Duration(len(version)) * time.Second)
		if change != nil {
			change(p.specs[0])
		}
		set := b.Build(p, previous)
		return set, set.View(east, nil, all).Lookup(resource.Cluster, "a")
	}
	want := func(r *view.Resource, requests uint32, ejection time.Duration) {
		t.Helper()
		c := &clusterv3.Cluster{}
		a := &anypb.Any{}
		if err := proto.Unmarshal(r.Body, a); err != nil {
			t.Fatal(err)
		}
		if err := a.UnmarshalTo(c); err != nil {
			t.Fatal(err)
		}
		for _, th := range c.GetCircuitBreakers().GetThresholds() {
			if got := th.GetMaxRequests().GetValue(); got != requests {
				t.Errorf("max_requests %d with priority %s, want %d", got, th.GetPriority(), requests)
			}
		}
		if got := c.GetOutlierDetection().GetBaseEjectionTime().AsDuration(); got != ejection {
			t.Errorf("base_ejection_time %s, want %s", got, ejection)
		}
	}
	none, r := build("1", 0, nil, nil)
	want(r, 1<<32-1, time.Second)
	first, limited := build("2", 20, none, nil)
	want(limited, 20, isobar.LimitedEjectionTime)
	second, same := build("12", 20, first, nil) // with another timeout
	if same != limited {
		t.Error("the same limit makes another cluster")
	}
	_, other := build("3", 30, second, nil)
	want(other, 30, isobar.LimitedEjectionTime)
	_, own := build("4", 20, nil, func(s *isobar.Service) { s.CircuitBreakers.MaxRequests = 7 })
	want(own, 7, time.Second)
	_, own = build("5", 20, nil, func(s *isobar.Service) { s.OutlierDetection.Set(base, int64(7*time.Second)) })
	want(own, 20, 7*time.Second)
}
