package server_test

import (
	"math"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestLossOfAZoneIsPlayed: the status and the metrics tell whether what is left
// after the loss of a zone has room, before any zone is lost.
func TestLossOfAZoneIsPlayed(t *testing.T) {
	for _, row := range []struct {
		name     string
		rate     float64 // of each of four zones that may carry 800
		shed     float64
		failing  int
		headroom float64
	}{
		{"room", 400, 0, 0, 1 - 1600.0/2400},
		{"full", 700, 0, 1, 1 - 2800.0/2400},
		{"shed", 700, 0.5, 1, 1 - 2800.0/2400},
	} {
		t.Run(row.name, func(t *testing.T) {
			cfg := configuration(t)
			cfg.Services[0].MaxShed = row.shed
			inWorld(t, cfg, func(w *world) {
				w.start(everywhere(row.rate)...)
				var status admin.Status
				if w.read("127.0.0.1", "/v1/status", &status); status.N1 != nil {
					t.Errorf("told before anything was played: %+v", status.N1)
				}
				before := w.settle(config.DefaultN1Interval - time.Second)
				w.settle(2 * time.Second)
				w.read("127.0.0.1", "/v1/status", &status)
				n := status.N1
				if n == nil || n.Services != 1 || n.Failing != row.failing || len(n.Worst) != row.failing {
					t.Fatalf("%+v", n)
				}
				if got := testhelp.Metric(t, w.server.Metrics(), "isobar_n1_headroom_ratio"); math.Abs(got-row.headroom) > 0.02 {
					t.Errorf("headroom %.3f, want %.3f", got, row.headroom)
				}
				drop, full := testhelp.Metric(t, w.server.Metrics(), "isobar_n1_drop_ratio"), testhelp.Metric(t, w.server.Metrics(), "isobar_n1_utilization_ratio")
				if (drop > 0) != (row.shed > 0) || (full > 1.01) != (row.failing > 0 && row.shed == 0) {
					t.Errorf("drops %.3f, fullest %.3f of its ceiling", drop, full)
				}
				if moved := apart(before, w.tick()); moved > 1 {
					t.Errorf("what was played moved shares by %.1f points", moved)
				}
			})
		})
	}
}

// TestLossesAreNotPlayed: nothing is told where it is switched off, where
// capacity is not declared, and of what is in one zone only.
func TestLossesAreNotPlayed(t *testing.T) {
	for name, change := range map[string]func(*config.Config){
		"off": func(c *config.Config) { c.N1Interval = 0 },
		"undeclared": func(c *config.Config) {
			c.Services[0].Localities[1].MaxRate, c.Services[0].Localities[1].Concurrency = 0, 0
		},
		"one zone": func(c *config.Config) { c.Services[0].Localities = c.Services[0].Localities[:1] },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := configuration(t)
			change(cfg)
			inWorld(t, cfg, func(w *world) {
				w.start(everywhere(100)...)
				w.settle(3 * time.Minute)
				if _, services := w.server.Reserves(); len(services) > 0 {
					t.Errorf("%+v", services)
				}
			})
		})
	}
}
