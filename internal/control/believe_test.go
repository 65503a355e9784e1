package control_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// vote has all checkers say the same of every endpoint of a zone.
func (c *checkers) vote(s *isobar.Service, zone string, status isobar.HealthStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range s.Localities {
		sl := &s.Localities[i]
		for k := range sl.Endpoints {
			for _, ch := range c.connected {
				if sl.Locality.String() == zone {
					c.reports = append(c.reports, health.Report{
						Checker: ch.ID, Service: s.Name, Locality: sl.Locality, Address: sl.Endpoints[k].Address, Status: status,
					})
				}
			}
		}
	}
}

// forget takes back what the checkers said.
func (c *checkers) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports = nil
}

// TestClientsConfirmAMassFailure: all checkers say at once that everything is
// down, which is not believed. What clients then fail to reach is: that zone
// goes down, and the one that serves them stays.
func TestClientsConfirmAMassFailure(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := web("web", 4)
		s.HealthChecks = []isobar.HealthCheck{{
			Protocol: isobar.CheckTCP, Interval: time.Second, Timeout: 500 * time.Millisecond, UnhealthyThreshold: 2, HealthyThreshold: 1, TCP: &isobar.TCPCheck{},
		}}
		r := &reporters{parts: newParts(), nodes: 3, rate: 200, opened: time.Now()}
		r.topology.Services = []isobar.Service{s}
		c := &checkers{changed: make(chan struct{}, 1)}
		for _, zone := range []string{"east/a", "east/b", "east/c"} {
			c.connected = append(c.connected, health.Checker{
				ID: zone, Locality: isobar.MustLocality(zone), Protocols: health.ProtocolsOf(isobar.CheckTCP) | health.SpeaksV3,
				Since: time.Now(), LastSeen: time.Now(),
			})
		}
		l, stop := start(t, r.parts, func(o *control.Options) { o.Reports, o.Clients, o.Checkers = r, r, c })
		c.vote(&s, "east/a", isobar.Healthy)
		c.vote(&s, "east/b", isobar.Healthy)
		pass(20 * time.Second)
		c.forget()
		c.vote(&s, "east/a", isobar.Unhealthy)
		c.vote(&s, "east/b", isobar.Unhealthy)
		pass(20 * time.Second)
		usable := func(site int) int {
			svc, _ := l.Current().Service("web")
			return svc.Sites[site].Group.Usable()
		}
		if a, b := usable(0), usable(1); a != 4 || b != 4 {
			t.Fatalf("%d and %d endpoints are up while the failure should be held, want 4 and 4", a, b)
		}
		r.failing.Store("east/a", 1.0)
		pass(20 * time.Second)
		if a, b := usable(0), usable(1); a != 0 || b != 4 {
			t.Errorf("%d and %d endpoints are up after clients failed to reach the first zone, want 0 and 4", a, b)
		}
		stop()
	})
}

// TestClientsContradictAMassFailure: all checkers say that a service is down and another
// one is up. As long as the requests of clients succeed, it stays in use.
func TestClientsContradictAMassFailure(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, other := web("web", 4), web("other", 8)
		checks := []isobar.HealthCheck{{
			Protocol: isobar.CheckTCP, Interval: time.Second, Timeout: 500 * time.Millisecond, UnhealthyThreshold: 2, HealthyThreshold: 1, TCP: &isobar.TCPCheck{},
		}}
		s.HealthChecks, other.HealthChecks = checks, checks
		r := &reporters{parts: newParts(), nodes: 3, rate: 200, opened: time.Now()}
		r.topology.Services = []isobar.Service{other, s}
		c := &checkers{changed: make(chan struct{}, 1)}
		for _, zone := range []string{"east/a", "east/b", "east/c"} {
			c.connected = append(c.connected, health.Checker{
				ID: zone, Locality: isobar.MustLocality(zone), Protocols: health.ProtocolsOf(isobar.CheckTCP) | health.SpeaksV3,
				Since: time.Now(), LastSeen: time.Now(),
			})
		}
		l, stop := start(t, r.parts, func(o *control.Options) { o.Reports, o.Clients, o.Checkers = r, r, c })
		say := func(status isobar.HealthStatus) {
			c.forget()
			for _, zone := range []string{"east/a", "east/b"} {
				c.vote(&s, zone, status)
				c.vote(&other, zone, isobar.Healthy)
			}
		}
		usable := func() (n int) {
			svc, _ := l.Current().Service("web")
			for i := range svc.Sites {
				n += svc.Sites[i].Group.Usable()
			}
			return n
		}
		say(isobar.Healthy)
		pass(20 * time.Second)
		say(isobar.Unhealthy)
		pass(2 * time.Minute)
		if n := usable(); n != 8 {
			t.Errorf("%d endpoints are up while the requests of clients succeed, want all 8", n)
		}
		// In one zone they no longer do.
		r.failing.Store("east/a", 1.0)
		pass(time.Minute)
		if n := usable(); n != 4 {
			t.Errorf("%d endpoints are up after clients failed to reach one zone, want the 4 of the other", n)
		}
		stop()
	})
}
