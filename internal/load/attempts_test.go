package load_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/load"
)

// counted is what Envoy counts of one locality in an interval.
type counted struct {
	issued, success, errors uint64
	inProgress              uint32
	dropped, categorised    uint64
}

func (c counted) report() load.ServiceReport {
	r := load.ServiceReport{Service: "checkout", Interval: interval, Dropped: c.dropped, Localities: []load.LocalityReport{{
		Locality: &zoneB, Issued: c.issued, HasIssued: c.issued > 0, Succeeded: c.success, Errors: c.errors, InProgress: c.inProgress,
	}}}
	if c.categorised > 0 {
		r.DroppedBy = []load.DropCount{{Category: "isobar", Count: c.categorised}}
	}
	return r
}

// TestAttempts feeds what real Envoys report, each case after an interval of
// successes, and asks for requests of that interval.
func TestAttempts(t *testing.T) {
	before := counted{issued: 100, success: 100}
	for _, tc := range []struct {
		name                                string
		before, now                         counted
		demand, landed, success, errs, left float64
	}{
		{"all succeed", before, counted{issued: 100, success: 100}, 100, 100, 100, 0, 0},
		{"all answer 5xx or time out", before, counted{issued: 100, errors: 100}, 100, 100, 0, 100, 0},
		{"all connections are refused", before, counted{errors: 100}, 100, 100, 0, 100, 0},
		{"half of the connections are refused", before, counted{issued: 50, success: 50, errors: 50}, 100, 100, 50, 50, 0},
		{"the zone hangs", before, counted{issued: 100, inProgress: 100}, 100, 100, 0, 0, 0},
		{"the client leaves before headers", before, counted{issued: 100}, 100, 100, 0, 0, 100},
		{"connections are refused and what hung is reset", counted{issued: 100, inProgress: 100}, counted{errors: 150}, 50, 50, 0, 150, 0},
		{"what hung ends", counted{issued: 100, inProgress: 100}, counted{success: 100}, 0, 0, 100, 0, 0},
		{"each try counts", before, counted{issued: 200, success: 100, errors: 100}, 200, 200, 100, 100, 0},
		{"drops for overload", before, counted{issued: 60, success: 60, dropped: 40, categorised: 40}, 100, 60, 60, 0, 0},
		{"a breaker's max_pending_requests overflows", before, counted{issued: 60, success: 60, dropped: 40}, 100, 60, 60, 0, 0},
		{"a breaker's max_requests overflows: the same requests twice", before, counted{issued: 25, success: 25, errors: 75, dropped: 75}, 100, 100, 25, 75, 0},
		{"refused while others are dropped for overload", before, counted{errors: 60, dropped: 40, categorised: 40}, 100, 60, 0, 60, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tab := table()
			c := newClient(1, load.AgentEnvoy)
			tab.Merge([]load.StreamWindow{c.window(report(at(1), tc.before.report()))})
			tab.Merge([]load.StreamWindow{c.window(report(at(2), tc.now.report()))})
			src := tab.Snapshot(at(2)).Service("checkout").Source(zoneA)
			if src == nil {
				src = &load.SourceLoad{}
			}
			got := load.LandedLoad{}
			if len(src.Landed) > 0 {
				got = src.Landed[0]
			}
			seconds := float64(interval) / float64(time.Second)
			near(t, "demand", seconds*src.Raw, tc.demand, 1e-6)
			near(t, "attempts", seconds*got.Issued, tc.landed, 1e-6)
			near(t, "successes", seconds*got.Succeeded, tc.success, 1e-6)
			near(t, "errors", seconds*got.Errors, tc.errs, 1e-6)
			near(t, "abandoned", seconds*got.Abandoned, tc.left, 1e-6)
			near(t, "in progress", got.Waiting, float64(tc.now.inProgress), 1e-6)
		})
	}
}
