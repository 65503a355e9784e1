package interop

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// returned is the time within which a client that lost a service has to make calls
// again after it came back.
const returned = 3 * time.Second

// pollsEachSecond makes gRPC C++ and Python 1.51 read assignments once a second while all of
// their calls fail, instead of every five seconds.
const pollsEachSecond = "GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS=1000"

// For how long a service is away, the first time and the second time.
const (
	awayLong  = 12 * time.Second
	awayShort = 3 * time.Second
)

// deletion: a service is removed and comes back with equal content, twice. A
// client that starts as `isobar bootstrap grpc` says answers all calls by what it
// had; one without ignore_resource_deletion fails calls meanwhile, and is answered
// again soon after the return.
func (s *site) deletion() {
	t := s.t
	forgetful := s.kind
	forgetful.forgets = true
	forgetful.env = append(slices.Clone(forgetful.env), pollsEachSecond) // others ignore it
	forgets := forgetful.start(t, s.xds, "leaving")
	forgets.ready(t)
	var keeper *client // none where the kind can't
	kept, took := false, false
	if !excused(s.kind.name, keeps) {
		keeper = s.kind.start(t, s.xds, "leaving")
		keeper.ready(t)
		defer func() { seen.ran(s.kind.name, keeps, kept) }()
	}
	defer func() { seen.ran(s.kind.name, takesBack, took) }()
	whole := s.servicesText()
	rest := servicesWithout(t, whole, "leaving")
	nowKept, nowTook := true, true
	for _, away := range []time.Duration{awayLong, awayShort} {
		s.takeAway("leaving", rest, forgets)
		gone := time.Now()
		await(t, "calls that fail", func() error {
			if o := forgets.call(t, 5); len(o.Failed) == 0 {
				return fmt.Errorf("%+v", o)
			}
			return nil
		})
		nowKept = keeper.answersAll(t, "while the service is away", away-time.Since(gone)) && nowKept
		s.services(whole)
		await(t, "the service that is back", func() error {
			_, err := s.plan("leaving")
			return err
		})
		back := time.Now()
		forgets.ready(t)
		d := time.Since(back)
		t.Logf("without ignore_resource_deletion calls are answered again after %s", d)
		if d > returned {
			nowTook = false
			t.Errorf("without ignore_resource_deletion calls are answered again after %s, want %s at most", d, returned)
		}
		nowKept = keeper.answersAll(t, "after the return", time.Second) && nowKept
	}
	kept, took = nowKept, nowTook
}

// answersAll reports whether all calls of a client are answered for some time. No
// client only waits.
func (c *client) answersAll(t *testing.T, when string, d time.Duration) bool {
	t.Helper()
	if c == nil {
		pause(t.Context(), d)
		return true
	}
	o := c.call(t, max(1, int(d.Seconds()*callRate)))
	if len(o.Failed) > 0 {
		t.Errorf("with ignore_resource_deletion, %s: %+v", when, o)
	}
	return len(o.Failed) == 0
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
