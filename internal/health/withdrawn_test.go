package health_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

func TestWhatOperatorsDrainAndStopIsNotHeld(t *testing.T) {
	all := []string{first, "10.0.0.1:80", second, "10.1.0.1:80"}
	for name, out := range map[string]func(*office){
		"override": func(o *office) {
			for _, a := range all[:3] {
				o.operators = o.operators.With(health.Override{Key: health.Key{Service: "web", Address: a}, Status: isobar.Draining})
			}
		},
		"configured": func(o *office) {
			o.change(func(s *isobar.Service) {
				s.Localities[0].Endpoints[0].Health = isobar.Draining
				s.Localities[0].Endpoints[1].Health = isobar.Unhealthy
				s.Localities[1].Endpoints[0].Health = isobar.Draining
			})
		},
	} {
		for when, early := range map[string]bool{"before they stop": true, "after": false} {
			t.Run(name+" "+when, func(t *testing.T) {
				o := newOffice(t, topology(service("web", 2, zoneA, zoneB)), checkersIn(1, zoneA, zoneB, zoneC))
				o.run(10 * time.Second)
				if early {
					out(o)
					o.step(interval)
				}
				o.dead(all[:3]...)
				o.run(5 * interval)
				if !early {
					if v := o.verdict(first); !v.Held {
						t.Fatalf("%+v, want it held: three of four at once", v)
					}
					out(o)
				}
				o.run(5 * interval)
				if alarms := o.keeper.VerdictTable().Alarms(); len(alarms) != 0 {
					t.Errorf("alarm: %s", alarms[0].Why)
				}
				o.operators = health.Table{}
				o.change(func(s *isobar.Service) {
					for i := range s.Localities {
						for j := range s.Localities[i].Endpoints {
							s.Localities[i].Endpoints[j].Health = isobar.Unknown
						}
					}
				})
				o.look()
				for _, a := range all[:3] {
					if got := o.told(a); got != isobar.Unhealthy {
						t.Errorf("%s is %s once it is back in use, want unhealthy: it is stopped", a, got)
					}
				}
			})
		}
	}
}

// A blue-green deployment: all old ones are drained in the same change that
// adds the new ones.
func TestNewEndpointsDoNotWaitForWhatIsDrained(t *testing.T) {
	o := atRest(t, 1, 1, zoneA, zoneB, zoneC)
	o.change(func(s *isobar.Service) {
		for i, a := range fresh(3) {
			s.Localities[i].Endpoints[0].Health = isobar.Draining
			s.Localities[i].Endpoints = append(s.Localities[i].Endpoints, isobar.Endpoint{Address: a})
		}
	})
	o.look()
	for _, a := range fresh(3) {
		if !o.told(a).Usable() {
			t.Errorf("%s is %s: nothing is left to use", a, o.told(a))
		}
	}
	// By overrides: what waits is let in when the last healthy one is drained.
	o = atRest(t, 1, 1, zoneA, zoneB, zoneC)
	o.add(0, fresh(1)...)
	o.look()
	for i, a := range []string{first, second, third} {
		if o.told(fresh(1)[0]).Usable() {
			t.Errorf("used with %d others healthy", 3-i)
		}
		o.operators = o.operators.With(health.Override{Key: health.Key{Service: "web", Address: a}, Status: isobar.Draining})
		o.look()
	}
	if !o.told(fresh(1)[0]).Usable() {
		t.Errorf("%s: nothing is left to use", o.told(fresh(1)[0]))
	}
}
