package health_test

import (
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
)

// Checkers begin again with an endpoint that moves to another locality or is
// probed elsewhere, and with all of a service that is probed with other TLS
// settings; they begin with unhealthy.
func TestEndpointsThatChangeAreProbedAnew(t *testing.T) {
	for name, edit := range map[string]func(*isobar.Service){
		"moved": func(s *isobar.Service) {
			e := s.Localities[0].Endpoints[0]
			s.Localities[0].Endpoints = slices.Delete(s.Localities[0].Endpoints, 0, 1)
			s.Localities[1].Endpoints = append(s.Localities[1].Endpoints, e)
		},
		"other port": func(s *isobar.Service) {
			s.Localities[0].Endpoints[0].Check = &isobar.EndpointCheck{Port: 81}
		},
		"over TLS": func(s *isobar.Service) {
			s.HealthChecks = slices.Clone(s.HealthChecks)
			s.HealthChecks[0].TLS = true
		},
		"other server name": func(s *isobar.Service) {
			s.HealthChecks = append(slices.Clone(s.HealthChecks), s.HealthChecks[0])
			s.HealthChecks[1].Protocol, s.HealthChecks[1].TCP = isobar.CheckHTTP, nil
			s.HealthChecks[1].TLS, s.HealthChecks[1].HTTP = true, &isobar.HTTPCheck{Path: "/", Host: "other.example"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := atRest(t, 5, 1, zoneA, zoneB, zoneC)
			o.change(edit)
			o.look()
			o.step(100 * time.Millisecond) // what was on its way still tells of the old place
			o.dead(first)
			for o.now.Before(start.Add(10*time.Second + 18*time.Second)) {
				if o.step(interval); o.told(first) != isobar.Healthy {
					t.Fatalf("%s after %s, want what is known until checkers had their time", o.told(first), o.now.Sub(start)-10*time.Second)
				}
			}
			o.run(4 * interval)
			if got := o.told(first); got != isobar.Unhealthy {
				t.Errorf("%s, want unhealthy: all say so for long enough", got)
			}
		})
	}
	o := atRest(t, 2, 1, zoneA, zoneB, zoneC)
	o.change(func(s *isobar.Service) { s.Localities[0].Endpoints[0].Check = &isobar.EndpointCheck{} })
	o.dead(first)
	o.step(interval)
	if got := o.told(first); got != isobar.Unhealthy {
		t.Errorf("%s, want unhealthy at once: nothing changed that matters", got)
	}
}
