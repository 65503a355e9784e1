package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// What fails in a window may have been issued in the one before it: the part of the
// requests that fails is of the attempts that ended, and never more than all.
func TestFailuresAreAtMostAll(t *testing.T) {
	b, c := isobar.MustLocality("us/b"), isobar.MustLocality("us/c")
	for _, tt := range []struct {
		name   string
		landed []load.LandedLoad
		want   []string
	}{
		{"in order", []load.LandedLoad{{Locality: b, Issued: 100, Succeeded: 99.5, Errors: 0.5}}, nil},
		{"some", []load.LandedLoad{{Locality: b, Issued: 100, Succeeded: 95, Errors: 5}}, []string{
			"5% of the requests fail: most of them from us/b to us/b, where 5 of 100 requests/s do",
		}},
		{"late errors", []load.LandedLoad{{Locality: b, Issued: 10, Errors: 40}, {Locality: c, Issued: 40, Succeeded: 40}}, []string{
			"50% of the requests fail: most of them from us/b to us/b, where 40 of 40 requests/s do",
			"all requests to us/b fail: 40/s, and none succeeds",
		}},
		{"nothing issued", []load.LandedLoad{{Locality: b, Errors: 40}}, []string{
			"100% of the requests fail: most of them from us/b to us/b, where 40 of 40 requests/s do",
			"all requests to us/b fail: 40/s, and none succeeds",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &plan.Service{Load: &load.ServiceLoad{Sources: []load.SourceLoad{{Source: b, Window: 2 * time.Second, Landed: tt.landed}}}}
			if got := plan.Texts(s.Failures()); strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}
