package config_test

import (
	"testing"

	"github.com/isobar-xds/isobar"
)

// mustBeProbeable holds the health checks of a service against what may be
// sent to checkers.
func mustBeProbeable(t *testing.T, s *isobar.Service) {
	t.Helper()
	for _, c := range s.HealthChecks {
		protocols := 0
		for p, given := range []bool{c.HTTP != nil, c.TCP != nil, c.GRPC != nil, c.Redis != nil} {
			if given {
				protocols++
				if int(c.Protocol) != p {
					t.Errorf("protocol %v stands beside another check: %+v", c.Protocol, c)
				}
			}
		}
		if protocols != 1 {
			t.Errorf("%d protocols in %+v", protocols, c)
		}
		if c.Timeout <= 0 || c.Timeout > c.Interval || c.Jitter < 0 || c.Jitter > c.Interval || c.UnhealthyThreshold == 0 || c.HealthyThreshold == 0 {
			t.Errorf("times or thresholds of %+v", c)
		}
		if c.HTTP == nil {
			continue
		}
		if c.HTTP.Path == "" || c.HTTP.Path[0] != '/' {
			t.Errorf("path %q", c.HTTP.Path)
		}
		for _, r := range c.HTTP.Expected {
			if r.Start < 100 || r.End > 600 || r.Start >= r.End {
				t.Errorf("statuses %+v", r)
			}
		}
	}
	if len(s.HealthChecks) > 0 && (s.Checkers.Domains < 1 || s.Checkers.Domains > s.Checkers.Count) {
		t.Errorf("checkers %+v", s.Checkers)
	}
}
