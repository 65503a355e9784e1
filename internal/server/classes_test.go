package server_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
)

// TestClassesOverTheWire: demand is a third too much. Clients of one locality
// are told different drops by their class: batch jobs in both regions yield
// as far as they may, then everybody else does; payments do not.
func TestClassesOverTheWire(t *testing.T) {
	cfg := configuration(t)
	site := func(l, address string) isobar.ServiceLocality {
		return isobar.ServiceLocality{Locality: loc(l), MaxRate: 1000, Endpoints: []isobar.Endpoint{{Address: address}}}
	}
	cfg.Services = []isobar.Service{{
		Name: "checkout", MaxShed: 0.5, Localities: []isobar.ServiceLocality{site("us/a", "10.0.0.1:80"), site("eu/a", "10.1.0.1:80")},
		Criticality: &isobar.Criticality{
			Clients: []isobar.ClientClass{{Client: "batch-*", Class: isobar.ClassSheddable}, {Client: "payments", Class: isobar.ClassCriticalPlus}},
			MaxShed: isobar.ClassFractions{0, 0.5, 0.5, 0.75},
		},
	}}
	inWorld(t, cfg, func(w *world) {
		ended := time.Now().Add(3 * time.Minute)
		until := func(rate float64) func(time.Time) float64 {
			return func(now time.Time) float64 {
				if now.Before(ended) {
					return rate
				}
				return rate / 2
			}
		}
		var agents []fleet.AgentOptions
		for _, region := range []string{"us/a", "eu/a"} {
			for i, cluster := range []string{"batch-reports", "payments", "web"} {
				rate := []float64{200, 400, 480}[i]
				agents = append(agents, clients(region, 2, until(rate), func(o *fleet.AgentOptions) { o.ID, o.Cluster = cluster+"-"+region+o.ID, cluster })...)
			}
		}
		w.start(agents...)
		p := w.tick()
		for time.Now().Before(ended.Add(-2 * interval)) {
			p = w.tick()
			noViolations(t, p)
		}
		// 2160 requests/s, room for 1600: batch gives 300 of 400, web 260 of 960.
		want := map[string]float64{"batch-reports": 0.75, "payments": 0, "web": 260. / 960}
		for i, a := range w.agents {
			cluster := agents[i].Cluster
			drop := 0.0
			for _, d := range a.Assignment("checkout").GetPolicy().GetDropOverloads() {
				drop += float64(d.GetDropPercentage().GetNumerator()) / map[string]float64{"HUNDRED": 100, "TEN_THOUSAND": 10_000}[d.GetDropPercentage().GetDenominator().String()]
			}
			if math.Abs(drop-want[cluster]) > 0.03 {
				t.Errorf("%s in %s drops %.3f, want %.3f", cluster, agents[i].Locality, drop, want[cluster])
			}
		}
		e, err := p.Explain("checkout", loc("us/a"))
		if err != nil {
			t.Fatal(err)
		}
		if len(e.Classes) != 4 || strings.Join(e.Classes[isobar.ClassSheddable].Clients, " ") != "batch-reports" ||
			math.Abs(e.Classes[isobar.ClassSheddable].Rate-400) > 40 || e.Classes[isobar.ClassCriticalPlus].Drop != 0 {
			t.Errorf("classes are explained as %+v", e.Classes)
		}
		for time.Now().Before(ended.Add(2 * time.Minute)) {
			p = w.tick()
		}
		if s, _ := p.Service("checkout"); s.Result.Drop != 0 {
			t.Errorf("%.3f is still dropped when all fits again", s.Result.Drop)
		}
	})
}
