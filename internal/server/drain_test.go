package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestDrainsThatBreakNeedForce: endpoints can be drained as long as the rest
// keeps its ceilings; from there on the refusal tells the numbers, changes
// nothing, and yields to force.
func TestDrainsThatBreakNeedForce(t *testing.T) {
	cfg := configuration(t)
	cfg.Admin.Writable = true
	inWorld(t, cfg, func(w *world) {
		w.start(everywhere(650)...) // of 800 that each of four zones may carry: 3 of 16 endpoints can go
		for range 10 {
			w.tick()
		}
		path := func(e int) string {
			return fmt.Sprintf("/v1/services/checkout/endpoints/10.%d.0.%d:80/health", e/4, e%4+1)
		}
		drained := 0
		var status int
		var answer map[string]any
		for ; drained < 16; drained++ {
			if status, answer = w.put(path(drained), "draining"); status != 200 {
				break
			}
			w.tick()
		}
		if status != 409 || drained != 3 {
			t.Fatalf("%d %v after %d drains", status, answer, drained)
		}
		if text := fmt.Sprint(answer["error"]); !strings.Contains(text, "checkout: ") || !strings.Contains(text, "of its capacity, above its ceiling of 80.0%") {
			t.Errorf("%s", text)
		}
		if h := healthOf(w.tick(), "10.0.0.4:80"); !h.Usable() {
			t.Errorf("refused, but %s", h)
		}
		if status, answer = w.put(path(drained)+"?force=maybe", "draining"); status != 400 {
			t.Errorf("%d %v", status, answer)
		}
		if status, answer = w.put(path(drained)+"?force=true", "draining"); status != 200 {
			t.Errorf("forced: %d %v", status, answer)
		}
		if status, answer = w.put(path(drained+1), "unhealthy"); status != 200 {
			t.Errorf("what is down: %d %v", status, answer)
		}
		if status, answer = w.put(path(drained), "healthy"); status != 200 {
			t.Errorf("what helps: %d %v", status, answer)
		}
		if status, answer = w.put("/v1/services/checkout/endpoints/10.9.9.9:80/health", "draining"); status != 404 {
			t.Errorf("nobody: %d %v", status, answer)
		}
	})
}

// TestDrainsThatLeaveNoReserveNeedForce: what stands the loss of any zone goes on
// to do so; where the loss of zones is not played, drains go on until the rest is
// full.
func TestDrainsThatLeaveNoReserveNeedForce(t *testing.T) {
	for name, row := range map[string]struct {
		every   time.Duration
		drained int
	}{
		"with reserve":    {config.DefaultN1Interval, 1},
		"nothing is kept": {0, 5},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := configuration(t)
			cfg.Admin.Writable, cfg.N1Interval = true, row.every
			inWorld(t, cfg, func(w *world) {
				// 2,150 in all, and 200 below the ceiling of each of 16 endpoints: 11 are
				// needed, which are left without a zone of four if one more is missing.
				w.start(everywhere(537.5)...)
				for range 10 {
					w.tick()
				}
				drained := 0
				var status int
				var answer map[string]any
				for ; drained < 16; drained++ {
					path := fmt.Sprintf("/v1/services/checkout/endpoints/10.%d.0.%d:80/health", drained%4, drained/4+1)
					if status, answer = w.put(path, "draining"); status != 200 {
						break
					}
					w.tick()
				}
				if status != 409 || drained != row.drained {
					t.Fatalf("%d %v after %d drains, want %d", status, answer, drained, row.drained)
				}
				text := fmt.Sprint(answer["error"])
				if reserve := strings.HasPrefix(text, "nothing breaks at once, but no reserve is left: checkout: it would no longer survive the loss of "); reserve != (row.every > 0) {
					t.Errorf("%s", text)
				}
				// The question before the order has the same answer.
				asked := func(address string) (d plan.Difference) {
					t.Helper()
					if code := w.order("/v1/whatif", `{"drain": [{"service": "checkout", "address": "`+address+`"}]}`, &d); code != 200 {
						t.Fatalf("what if %s: %d", address, code)
					}
					return d
				}
				address := fmt.Sprintf("10.%d.0.%d:80", drained%4, drained/4+1)
				if d := asked(address); d.Unchecked != "" || len(d.Refusals) == 0 || !strings.HasSuffix(text, d.Refusals[0]) {
					t.Errorf("asked %q, then refused by %q", d.Refusals, text)
				}
				if row.every == 0 {
					return
				}
				if status, answer = w.put("/v1/services/checkout/endpoints/10.2.0.1:80/health?force=true", "draining"); status != 200 {
					t.Fatalf("forced: %d %v", status, answer)
				}
				w.tick()
				if d := asked("10.3.0.1:80"); len(d.Refusals) != 0 {
					t.Errorf("where there is no reserve any more, asked: %q", d.Refusals)
				}
				if status, answer = w.put("/v1/services/checkout/endpoints/10.3.0.1:80/health", "draining"); status != 200 {
					t.Errorf("where there is no reserve any more: %d %v", status, answer)
				}
			})
		})
	}
}

// TestServicesThatDrainNeedForce: a service that is replaced by one without a
// zone is looked at, too; one that only grows is not. Plans use what is declared, which
// the rates of this test are made for: requests never queue where fake clients send them.
func TestServicesThatDrainNeedForce(t *testing.T) {
	cfg := configuration(t)
	cfg.Admin.Writable = true
	service := func(rate int, zones ...string) string {
		var b strings.Builder
		b.WriteString("capacity_trust: declared\nlocalities:\n")
		for i, z := range zones {
			fmt.Fprintf(&b, "  - {locality: %s, max_rate: %d, concurrency: 40, endpoints: [\"10.%d.0.1:80\"]}\n", z, rate, i)
		}
		return b.String()
	}
	cfg.Services = nil
	all := []string{"eu/a", "eu/b", "us/a", "us/b"}
	inWorld(t, cfg, func(w *world) {
		if status, answer := w.put("/v1/services/checkout", service(1000, all...)); status != 200 {
			t.Fatalf("%d %v", status, answer)
		}
		w.start(everywhere(600)...)
		for range 10 {
			w.tick()
		}
		for _, row := range []struct {
			path, body string
			want       int
		}{
			{"/v1/services/checkout", service(1000, all[:2]...), 409},
			{"/v1/services", "services:\n- name: checkout\n  " + strings.ReplaceAll(service(1000, all[:2]...), "\n", "\n  "), 409},
			{"/v1/services/checkout", service(2000, all...), 200},
			{"/v1/services/checkout", service(2000, all[:3]...), 200},
			{"/v1/services/checkout", service(2000, all[:1]...), 409},
			{"/v1/services/checkout?force=true", service(2000, all[:1]...), 200},
		} {
			if status, answer := w.put(row.path, row.body); status != row.want {
				t.Errorf("%s %s: %d %v, want %d", row.path, row.body, status, answer, row.want)
			}
			w.tick()
		}
	})
}
