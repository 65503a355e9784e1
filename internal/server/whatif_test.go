package server_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestWhatIfForetells: what is said of the loss of a zone comes true when its
// endpoints go, and nothing of it before.
func TestWhatIfForetells(t *testing.T) {
	cfg := configuration(t)
	cfg.Admin.Writable = true
	inWorld(t, cfg, func(w *world) {
		w.start(everywhere(600)...)
		for range 10 {
			w.tick()
		}
		before := w.server.Plan()
		var out plan.Difference
		if code := w.order("/v1/whatif", `{"lose": ["us/a"]}`, &out); code != 200 || len(out.Services) != 1 || !out.Settled {
			t.Fatalf("%d %+v", code, out)
		}
		d := &out.Services[0]
		if out.Latency.Settled <= out.Latency.Before || out.Latency.Before <= 0 || out.Moved < 0.1 || out.Moved > 0.5 || out.Shed != (plan.Three{}) {
			t.Errorf("%+v", out)
		}
		if moved := apart(before, w.tick()); moved > 1 {
			t.Errorf("the question moved shares by %.1f points", moved)
		}
		for e := range 4 {
			path := fmt.Sprintf("/v1/services/checkout/endpoints/10.2.0.%d:80/health", e+1)
			if code, answer := w.put(path, "unhealthy"); code != 200 {
				t.Fatalf("%d %v", code, answer)
			}
		}
		var p *plan.Plan
		for range 20 {
			p = w.tick()
		}
		s, _ := p.Service("checkout")
		for i := range s.Sites {
			at := s.Sites[i].Group.Locality
			got := 0.0
			if c := s.Sites[i].Capacity; c > 0 {
				got = s.Result.Load[i] / c
			}
			for _, l := range d.Localities {
				if l.Locality == at && math.Abs(l.Utilization.Settled-got) > 0.03 {
					t.Errorf("%s: %.3f foretold, %.3f came", at, l.Utilization.Settled, got)
				}
			}
		}
	})
}

// TestWhatIfMore: demand that does not fit is told, also of one source; what is
// not there is refused.
func TestWhatIfMore(t *testing.T) {
	inWorld(t, configuration(t), func(w *world) { // the interface is read-only
		w.start(everywhere(600)...)
		for range 10 {
			w.tick()
		}
		ask := func(body string) plan.Difference {
			t.Helper()
			var out plan.Difference
			if code := w.order("/v1/whatif", body, &out); code != 200 {
				t.Fatalf("%s: %d", body, code)
			}
			return out
		}
		if out := ask(`{"demand": [{"factor": 1}]}`); len(out.Services) != 0 || out.Same != 1 {
			t.Errorf("nothing more: %+v", out)
		}
		all := ask(`{"demand": [{"service": "checkout", "factor": 1.2}]}`)
		one := ask(`{"demand": [{"source": "us/a", "factor": 1.2}]}`)
		if len(all.Services) != 1 || len(one.Services) != 1 || all.Latency.Settled <= one.Latency.Settled || one.Latency.Settled <= one.Latency.Before {
			t.Errorf("more demand: %+v, of one source %+v", all, one)
		}
		double := ask(`{"demand": [{"factor": 2}], "lose": ["us"]}`)
		if len(double.Services) != 1 || len(double.Services[0].Breaches()) == 0 {
			t.Errorf("twice the demand in half the world: %+v", double)
		}
		if out := ask(`{"drain": [{"service": "checkout", "locality": "us"}, {"service": "checkout", "locality": "eu"}]}`); !out.Services[0].Dead {
			t.Errorf("everything is drained: %+v", out)
		}
		for body, want := range map[string]int{
			`{"lose": ["mars"]}`: 404, `{"lose": [""]}`: 400, `{"drain": [{"service": "nobody", "locality": "us"}]}`: 404,
			`{"drain": [{"service": "checkout"}]}`: 400, `{"drain": [{"service": "checkout", "address": "10.9.9.9:80"}]}`: 404,
			`{"demand": [{"factor": -1}]}`: 400, `{"demand": [{"service": "nobody", "factor": 1}]}`: 404,
			`{"demand": [{"source": "mars", "factor": 1}]}`: 404, `{"loose": []}`: 400, ``: 400, `{} {}`: 400,
		} {
			var refused admin.Problem
			if code := w.order("/v1/whatif", body, &refused); code != want || refused.Error == "" {
				t.Errorf("%s: %d %+v, want %d", body, code, refused, want)
			}
		}
		if s := w.settle(time.Second).Services[0]; s.Result.Drop != 0 {
			t.Error("a question dropped requests")
		}
	})
}

// fileOf is the configuration of the test world as a file, with another
// capacity of us/a.
func fileOf(rate string) string {
	var b strings.Builder
	b.WriteString("network:\n  latency_ms:\n    - {from: us, to: eu, ms: 80}\n    - {from: us/c, to: us/a, ms: 1}\n    - {from: us/c, to: us/b, ms: 1.9}\n")
	b.WriteString("services:\n  - name: checkout\n    localities:\n")
	for i, z := range []string{"eu/a", "eu/b", "us/a", "us/b"} {
		r := "1000"
		if z == "us/a" {
			r = rate
		}
		b.WriteString("      - locality: " + z + "\n        max_rate: " + r + "\n        concurrency: 40\n        endpoints:\n")
		for e := range 4 {
			b.WriteString("          - address: \"10." + string(rune('0'+i)) + ".0." + string(rune('1'+e)) + ":80\"\n")
		}
	}
	return b.String()
}

// TestPreviewForetells: what the preview of a configuration says comes true
// when it is put in force, and nothing of it before.
func TestPreviewForetells(t *testing.T) {
	cfg := configuration(t)
	cfg.Admin.Writable = true
	inWorld(t, cfg, func(w *world) {
		w.start(everywhere(300)...)
		for range 10 {
			w.tick()
		}
		var same admin.Previewed
		if code := w.order("/v1/plan", fileOf("1000"), &same); code != 200 || len(same.Services) != 0 || same.Same != 1 || !same.Settled {
			t.Errorf("the same configuration: %d %+v", code, same)
		}
		before := w.server.Plan()
		var out admin.Previewed
		if code := w.order("/v1/plan", fileOf("250"), &out); code != 200 || len(out.Services) != 1 || !out.Settled {
			t.Fatalf("a quarter of the capacity: %d %+v", code, out)
		}
		d := &out.Services[0]
		if d.Change != plan.ChangeChanged || len(d.Sources) == 0 {
			t.Fatalf("%+v", d)
		}
		for _, l := range d.Localities {
			if l.Locality == loc("us/a") && (l.Utilization.Settled > 0.81 || l.Utilization.First <= l.Utilization.Settled || l.Utilization.Before > 0.5) {
				t.Errorf("utilization of us/a: %+v", l.Utilization)
			}
		}
		if moved := apart(before, w.tick()); moved > 1 {
			t.Errorf("the preview moved shares by %.1f points", moved)
		}
		var refused admin.Problem
		if code := w.order("/v1/plan", "servces: []", &refused); code != 400 || refused.Place != "1:1" {
			t.Errorf("a file with a fault: %d %+v", code, refused)
		}
		if code := w.order("/v1/plan", "{}", &refused); code != 400 || refused.Place != "1:1" || !strings.Contains(refused.Error, "but 1 service of this file is in force") {
			t.Errorf("a file that has lost its services, as a reload would refuse: %d %+v", code, refused)
		}
		if code := w.order("/v1/plan", "services: []", &out); code != 200 || len(out.Services) != 1 || out.Services[0].Change != plan.ChangeRemoved {
			t.Errorf("a file without services: %d %+v", code, out)
		}
	})
}

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
