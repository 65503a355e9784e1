package reader_test

import (
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/lrs/reader"
)

// What was found among the services of one time or for one client says nothing
// about those of another.
func TestServicesThatReportsMayBeAbout(t *testing.T) {
	data, err := proto.Marshal(&loadstatsv3.LoadStatsRequest{ClusterStats: []*endpointv3.ClusterStats{
		{ClusterName: "cart"}, {ClusterName: "alias"}, {ClusterName: "checkout"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	both := &services{"cart": "cart", "checkout": "checkout", "alias": "checkout"}
	one := &services{"checkout": "checkout"}
	notCart := func(service string) bool { return service != "cart" }
	var reports reader.ReportReader
	for range 3 {
		for _, tc := range []struct {
			name    string
			known   reader.Services
			may     func(string) bool
			unknown int
			want    []string
		}{
			{"all", nil, nil, 0, []string{"alias", "cart", "checkout"}},
			{"both", both, nil, 0, []string{"cart", "checkout", "checkout"}},
			{"one of them", one, nil, 2, []string{"checkout"}},
			{"both, but not for this client", both, notCart, 0, []string{"checkout", "checkout"}},
		} {
			unknown := 0
			r, err := reports.Read(data, &reader.ReportOptions{Known: tc.known, May: tc.may, Unknown: func([]byte) { unknown++ }})
			if err != nil || unknown != tc.unknown || len(r.Services) != len(tc.want) {
				t.Fatalf("%s: %+v, %d unknown, %v", tc.name, r.Services, unknown, err)
			}
			for i, s := range r.Services {
				if s.Service != tc.want[i] {
					t.Errorf("%s: service %d is %q, want %q", tc.name, i, s.Service, tc.want[i])
				}
			}
		}
	}
}
