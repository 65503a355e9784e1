package server_test

import (
	"math"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
)

// TestCallsOverTheWire: customers in us/a send to checkout, whose instances are
// clients of pay and make two calls for each request. pay has room for 800 calls
// in us/a, so that 600 of 1000 requests have to leave for eu/a before they call.
func TestCallsOverTheWire(t *testing.T) {
	cfg := configuration(t)
	site := func(l string, rate float64, address string) isobar.ServiceLocality {
		return isobar.ServiceLocality{Locality: loc(l), MaxRate: rate, Endpoints: []isobar.Endpoint{{Address: address}}}
	}
	cfg.Services = []isobar.Service{
		{
			Name:       "checkout",
			Localities: []isobar.ServiceLocality{site("us/a", 2000, "10.0.0.1:80"), site("eu/a", 2000, "10.1.0.1:80")},
			Calls:      []isobar.Call{{Service: "pay", PerRequest: 2}},
		},
		{
			Name:       "pay",
			Localities: []isobar.ServiceLocality{site("us/a", 1000, "10.0.1.1:80"), site("eu/a", 4000, "10.1.1.1:80")},
		},
	}
	inWorld(t, cfg, func(w *world) {
		near := func() float64 { return w.server.Plan().Assignment("checkout", loc("us/a")).Share(loc("us/a")) }
		instances := func(l string, share func() float64) []fleet.AgentOptions {
			calls := func(time.Time) float64 { return 2 * 1000 * share() }
			return clients(l, 3, calls, func(o *fleet.AgentOptions) {
				o.ID, o.Cluster, o.Services = "checkout-"+o.ID, "checkout", []string{"pay"}
			})
		}
		agents := clients("us/a", 3, constant(1000))
		agents = append(agents, instances("us/a", near)...)
		agents = append(agents, instances("eu/a", func() float64 { return 1 - near() })...)
		w.start(agents...)
		p := w.tick()
		for range 30 {
			p = w.tick()
			noViolations(t, p)
		}
		if s := near(); math.Abs(s-0.4) > 0.03 {
			t.Errorf("checkout keeps %.3f in us/a, want 0.4", s)
		}
		if s := p.Assignment("pay", loc("us/a")).Share(loc("us/a")); s < 0.97 {
			t.Errorf("pay keeps %.3f of calls from us/a there, want all", s)
		}
		e, err := p.Explain("pay", loc("us/a"))
		if err != nil {
			t.Fatal(err)
		}
		if len(e.Calls) != 1 || !e.Calls[0].Used || math.Abs(e.Calls[0].Measured-2) > 0.1 {
			t.Errorf("calls %+v, want checkout's two per request", e.Calls)
		}
		if math.Abs(e.Demand.Rate-800) > 60 {
			t.Errorf("pay is planned for %.0f requests/s from us/a, want 800", e.Demand.Rate)
		}
	})
}
