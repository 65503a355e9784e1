package load_test

import (
	"encoding/json"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// TestNothingIsLearnedWithoutRequests: long-lived streams are in progress where
// nobody sends anything new. That is no line, and must not become one of NaN,
// which can't be saved and never goes away.
func TestNothingIsLearnedWithoutRequests(t *testing.T) {
	for _, inProgress := range []float64{10, 40, 400} { // of 20 for each of four endpoints
		l := newLimiting(limitOf(isobar.MetricInFlight, 20))
		l.site.Allowed = 0
		for range 100 {
			l.window(0, inProgress, 0)
		}
		if x := l.last[0]; x.State == load.LimitLearned || x.InUse > 0 {
			t.Errorf("%v in progress: %+v", inProgress, x)
		}
		if _, err := json.Marshal(l.last); err != nil {
			t.Errorf("%v in progress: %v", inProgress, err)
		}
		for k := range 100 { // it learns nevertheless when requests come
			rate := 200 + float64(k%20)*10
			l.window(rate, rate/20, 0)
		}
		if _, err := json.Marshal(l.last); err != nil || len(load.ValidDimensions(l.last)) != 1 {
			t.Errorf("%v in progress, and then requests: %+v, %v", inProgress, l.last, err)
		}
	}
	l := newLearning()
	for range 100 {
		l.window(0, 0.5)
	}
	if l.last.State == load.CapacityLearned || l.last.InUse > 0 {
		t.Errorf("utilization without requests: %+v", l.last)
	}
	if _, err := json.Marshal(l.last); err != nil {
		t.Error(err)
	}
}
