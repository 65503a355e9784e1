package server_test

import (
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
)

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
		if code := w.order("/v1/plan", "{}", &refused); code != 400 || refused.Place != "1:1" || !strings.Contains(refused.Error, "but 1 of this file are in force") {
			t.Errorf("a file that has lost its services, as a reload would refuse: %d %+v", code, refused)
		}
		if code := w.order("/v1/plan", "services: []", &out); code != 200 || len(out.Services) != 1 || out.Services[0].Change != plan.ChangeRemoved {
			t.Errorf("a file without services: %d %+v", code, out)
		}
	})
}
