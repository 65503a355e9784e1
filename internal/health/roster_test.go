package health_test

import (
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/health"
)

func ids(list []health.Checker) (out []string) {
	for _, c := range list {
		out = append(out, c.ID)
	}
	return out
}

func TestRoster(t *testing.T) {
	const s = time.Second
	a, b := checker("a", zoneA), checker("b", zoneB)
	moved := checker("b", zoneC)
	again := b
	again.Since = start.Add(time.Hour)
	r := health.NewRoster(2*s, []health.Checker{checker("old", zoneA), a}, start)
	for _, row := range []struct {
		at        time.Duration
		connected []health.Checker
		want      []string
		place     bool
	}{
		{0, nil, []string{"a", "old"}, false},
		{1 * s, []health.Checker{b, a, a}, []string{"a", "b", "old"}, true}, // b is new
		{2 * s, []health.Checker{a, b}, []string{"a", "b", "old"}, false},
		{3 * s, []health.Checker{a}, []string{"a", "b", "old"}, false}, // b is waited for
		{4 * s, []health.Checker{a, again}, []string{"a", "b", "old"}, false},
		{5 * s, []health.Checker{a, moved}, []string{"a", "b", "old"}, true},
		{6 * s, []health.Checker{a}, []string{"a", "b", "old"}, false},
		{8 * s, []health.Checker{a}, []string{"a", "old"}, true}, // in vain
		{15 * s, []health.Checker{a}, []string{"a"}, true},       // old did not come back
		{29 * s, []health.Checker{a}, []string{"a"}, false},
		{30 * s, []health.Checker{a}, []string{"a"}, true}, // time to balance
		{60 * s, []health.Checker{a}, []string{"a"}, false},
	} {
		if got := r.Observe(start.Add(row.at), row.connected); got != row.place {
			t.Errorf("after %s: place %v, want %v", row.at, got, row.place)
		}
		if got := ids(r.Checkers()); !slices.Equal(got, row.want) {
			t.Errorf("after %s: %v, want %v", row.at, got, row.want)
		}
		if next, waits := r.Next(); waits && !next.After(start.Add(row.at)) {
			t.Errorf("after %s: next at %s", row.at, next)
		}
	}
	if _, waits := r.Next(); waits {
		t.Error("waits for nothing")
	}
}
