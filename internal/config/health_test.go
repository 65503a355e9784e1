package config_test

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
)

// mustBeProbeable holds the health checks of a service against what may be
// sent to checkers.
func mustBeProbeable(t *testing.T, s *isobar.Service) {
	t.Helper()
	mustComeBack(t, s)
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

// mustComeBack: what the API shows of a service can be sent to it again.
func mustComeBack(t *testing.T, s *isobar.Service) {
	t.Helper()
	shown, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var read isobar.Service
	if err := json.Unmarshal(shown, &read); err != nil {
		t.Fatalf("%s: %v", shown, err)
	}
	again, _, err := config.DecodeService(s.Name, shown, config.Defaults{})
	if err != nil {
		t.Fatalf("%s is refused: %v", shown, err)
	}
	for what, got := range map[string][]isobar.HealthCheck{"read": read.HealthChecks, "sent again": again.HealthChecks} {
		if !reflect.DeepEqual(got, s.HealthChecks) {
			t.Errorf("%s: %+v, %s becomes %+v", shown, s.HealthChecks, what, got)
		}
	}
	if !reflect.DeepEqual(again.Checkers, s.Checkers) {
		t.Errorf("checkers %+v became %+v", s.Checkers, again.Checkers)
	}
}

func TestShownServicesCanBeSentAgain(t *testing.T) {
	data, err := os.ReadFile("testdata/config/health-checks.good.yml")
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := config.Decode("x", data)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Services {
		mustBeProbeable(t, &c.Services[i])
	}
}
