package server_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
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
