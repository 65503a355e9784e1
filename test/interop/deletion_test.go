package interop

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// returned is the time within which a client that lost a service has to make calls
// again after it came back.
const returned = 3 * time.Second

// takesBack reports whether clients of the kind can do what deletion asks for. The
// core of gRPC in 1.51 keeps a service with ignore_resource_deletion, but without
// it never takes one back that returns with equal content; gRPC of v2 does not
// know the feature.
func (k kind) takesBack() bool {
	return k.form == v3 && k.name != "gRPC C++" && k.name != "gRPC Python"
}

// deletion: a service is taken away and comes back with equal content, twice. A
// client that starts as `isobar bootstrap grpc` says keeps what it has; one without
// ignore_resource_deletion fails calls meanwhile and takes the service back.
func (s *site) deletion() {
	t := s.t
	away := 3 * time.Second
	if interopAll() {
		away = 12 * time.Second
	}
	forgetful := s.kind
	forgetful.forgets = true
	keeps, forgets := s.kind.start(t, s.xds, "leaving"), forgetful.start(t, s.xds, "leaving")
	keeps.ready(t)
	forgets.ready(t)
	whole := s.servicesText()
	rest := servicesWithout(t, whole, "leaving")
	for range 2 {
		s.takeAway("leaving", rest, keeps)
		if o := keeps.call(t, int(away.Seconds()*callRate)); len(o.Failed) > 0 {
			t.Errorf("with ignore_resource_deletion, while the service was away: %+v", o)
		}
		await(t, "calls that fail", func() error {
			if o := forgets.call(t, 5); len(o.Failed) == 0 {
				return fmt.Errorf("%+v", o)
			}
			return nil
		})
		s.services(whole)
		await(t, "the service that is back", func() error {
			_, err := s.plan("leaving")
			return err
		})
		back := time.Now()
		forgets.ready(t)
		if d := time.Since(back); d > returned {
			t.Errorf("without ignore_resource_deletion calls are answered again after %s, want %s at most", d, returned)
		}
		if o := keeps.call(t, callRate); len(o.Failed) > 0 {
			t.Errorf("with ignore_resource_deletion, after the return: %+v", o)
		}
	}
}

// servicesText returns the services in the configuration file.
func (s *isobar) servicesText() string {
	_, text, _ := strings.Cut(string(read(s.t, s.config)), "services:")
	return "services:" + text
}

// servicesWithout returns the services but one.
func servicesWithout(t *testing.T, services, name string) string {
	t.Helper()
	before, after, ok := strings.Cut(services, "- name: "+name+"\n")
	_, rest, ok2 := strings.Cut(after, "- name: ")
	if !ok || !ok2 {
		t.Fatalf("no service %s, or none after it: %s", name, services)
	}
	return before + "- name: " + rest
}

// takeAway removes a service to which a client sends, as an operator does who
// confirms it.
func (s *site) takeAway(service, rest string, c *client) {
	t := s.t
	t.Helper()
	await(t, "demand of "+service, func() error {
		c.call(t, callRate/2)
		_, source, err := s.source(service)
		if err == nil && source.Demand < 10 {
			err = fmt.Errorf("demand %g", source.Demand)
		}
		return err
	})
	s.services(rest)
	s.confirm(s.holds(service))
	await(t, "end of "+service, func() error {
		if _, err := s.plan(service); err == nil {
			return fmt.Errorf("it is still in the plan")
		}
		return nil
	})
}
