package health_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestScripts plays the scripts in testdata/script, which are the specification of health
// verdicts: how checkers vote, and what the verdict is. A script consists of scenarios that
// begin with "== what the scenario shows". Checkers report every 2 s, and find an endpoint
// healthy until a line says otherwise. A service has a TCP check every 5 s with a timeout of
// 1 s; an endpoint is down after 3 failures. The lines of a scenario:
//
//	checkers x@eu/a y@eu/b           the checkers that are connected, with their zones
//	x y reconnect                    these checkers open new streams
//	service web a1..a4@eu/a b1@eu/b  a service with its endpoints; a later line replaces it
//	service web count=3 zones=1 a1@eu/a:draining a2@eu/a:unprobed
//	                                 what the service asks of its checkers, and what the
//	                                 configuration says of an endpoint
//	x y say unhealthy of a1          what these checkers report from now on, of an endpoint,
//	                                 of a service, or (without "of") of everything;
//	                                 "unknown" is no report
//	all say timeout of web           the same of all checkers that are connected
//	operator sets a1 draining        an override
//	operator accepts web eu/a        an operator accepts a held mass failure (without a zone: all of it)
//	operator can't accept web        nothing is held
//	clients succeed in web eu/a      where requests succeed, by load reports (the whole list)
//	10s pass
//	a1 is healthy frozen: some text  the verdict, all its flags, and a part of its explanation
//	web has 3 unhealthy 1 healthy 2 held
//	                                 verdicts on all its endpoints, and their flags
//	clients see a1 unhealthy         what clients are told of an endpoint
//	alarm of web in eu/a: some text  a failure is held in these zones, and a part of the alarm;
//	                                 or: no alarm
//	# a comment
func TestScripts(t *testing.T) {
	testhelp.Scripts(t, func(t *testing.T, lines []testhelp.ScriptLine) {
		t.Helper()
		newScript(t).play(lines)
	})
}

// script is one scenario.
type script struct {
	*monitorWorld
	testhelp.Script

	services map[string]isobar.Service
	opinions []opinion // the last that applies counts
}

// opinion is what a checker reports from some line of a script on.
type opinion struct {
	checker string
	of      []string // endpoints or a service; empty: everything
	status  isobar.HealthStatus
}

func newScript(t *testing.T) *script {
	t.Helper()
	s := &script{monitorWorld: newMonitorWorld(t, topology(), nil), Script: testhelp.Script{T: t}, services: map[string]isobar.Service{}}
	s.says = func(checker string, k health.Key) isobar.HealthStatus {
		for _, o := range slices.Backward(s.opinions) {
			if o.checker == checker && (len(o.of) == 0 || slices.Contains(o.of, k.Address) || slices.Contains(o.of, k.Service)) {
				return o.status
			}
		}
		return isobar.Healthy
	}
	return s
}

func (s *script) play(lines []testhelp.ScriptLine) {
	s.Helper()
	for _, line := range lines {
		s.At = line.At
		fact, text, _ := strings.Cut(line.Text, ": ")
		s.do(strings.Fields(fact), strings.TrimSpace(text))
	}
}

// do carries out a line, of which text is what follows a colon.
func (s *script) do(words []string, text string) {
	s.Helper()
	verb := slices.IndexFunc(words, func(w string) bool {
		return slices.Contains([]string{"say", "says", "reconnect", "reconnects", "pass", "is", "has"}, w)
	})
	switch {
	case words[0] == "checkers":
		s.connect(words[1:])
		s.look()
	case words[0] == "service" && len(words) > 2:
		s.services[words[1]] = s.service(words[1], words[2:])
		s.configure()
	case words[0] == "operator" && len(words) > 2:
		s.operate(words[1], words[2], words[3:])
	case words[0] == "clients" && len(words) > 3:
		s.client(words[1:])
	case words[0] == "alarm" || (len(words) == 2 && words[0] == "no" && words[1] == "alarm"):
		s.expectAlarm(words, text)
	case verb <= 0:
		s.Failf("unknown: %q", words)
	case strings.HasPrefix(words[verb], "say") && len(words) > verb+1:
		s.say(s.named(words[:verb]), words[verb+1:])
	case strings.HasPrefix(words[verb], "reconnect"):
		s.reconnect(s.named(words[:verb]))
	case words[verb] == "pass":
		s.pass(words[0])
	case words[verb] == "is" && len(words) > 2:
		s.expectVerdict(words[0], words[2:], text)
	case words[verb] == "has":
		s.expectCounts(words[0], words[2:])
	default:
		s.Failf("incomplete: %q", words)
	}
}

// named returns the checkers of a line.
func (s *script) named(words []string) []string {
	s.Helper()
	known := ids(s.connected)
	if slices.Equal(words, []string{"all"}) {
		return known
	}
	for _, w := range words {
		if !slices.Contains(known, w) {
			s.Failf("no checker %q", w)
		}
	}
	return words
}

// connect keeps the streams of checkers that stay.
func (s *script) connect(words []string) {
	s.Helper()
	var next []health.Checker
	for _, w := range words {
		id, zone := s.place(w)
		c := checker(id, zone)
		c.Since, c.LastSeen = s.now, s.now
		if i := slices.IndexFunc(s.connected, func(o health.Checker) bool { return o.ID == id }); i >= 0 {
			c = s.connected[i]
		}
		next = append(next, c)
	}
	s.connected = next
}

// place reads NAME@ZONE.
func (s *script) place(word string) (name string, zone isobar.Locality) {
	s.Helper()
	name, at, _ := strings.Cut(word, "@")
	zone, err := isobar.ParseLocality(at)
	if err != nil {
		s.Failf("%q: %v", word, err)
	}
	return name, zone
}

func (s *script) service(name string, words []string) isobar.Service {
	s.Helper()
	out := isobar.Service{Name: name, HealthChecks: []isobar.HealthCheck{tcp()}}
	for _, w := range words {
		if n, found := strings.CutPrefix(w, "count="); found {
			out.Checkers.Count = s.Number(n)
			continue
		}
		if n, found := strings.CutPrefix(w, "zones="); found {
			out.Checkers.Domains = s.Number(n)
			continue
		}
		where, mark, _ := strings.Cut(w, ":")
		names, zone := s.place(where)
		i := slices.IndexFunc(out.Localities, func(l isobar.ServiceLocality) bool { return l.Locality == zone })
		if i < 0 {
			i = len(out.Localities)
			out.Localities = append(out.Localities, isobar.ServiceLocality{Locality: zone})
		}
		for _, address := range s.all(names) {
			e := isobar.Endpoint{Address: address}
			switch mark {
			case "":
			case "unprobed":
				e.Check = &isobar.EndpointCheck{Disabled: true}
			default:
				e.Health = s.status(mark)
			}
			out.Localities[i].Endpoints = append(out.Localities[i].Endpoints, e)
		}
	}
	return out
}

// all writes a1..a3 out.
func (s *script) all(names string) (out []string) {
	s.Helper()
	from, to, found := strings.Cut(names, "..")
	if !found {
		return []string{names}
	}
	prefix := strings.TrimRight(from, "0123456789")
	for i := s.Number(strings.TrimPrefix(from, prefix)); i <= s.Number(strings.TrimPrefix(to, prefix)); i++ {
		out = append(out, prefix+strconv.Itoa(i))
	}
	return out
}

func (s *script) status(word string) isobar.HealthStatus {
	s.Helper()
	h, err := isobar.ParseHealth(word)
	if err != nil {
		s.Failf("%v", err)
	}
	return h
}

func (s *script) configure() {
	var all []isobar.Service
	for _, service := range s.services {
		all = append(all, service)
	}
	s.topology = topology(all...)
	s.look()
}

// say reads "STATUS of NAME…".
func (s *script) say(checkers, words []string) {
	s.Helper()
	o := opinion{status: s.status(words[0])}
	if len(words) > 1 {
		if words[1] != "of" || len(words) == 2 {
			s.Failf("want STATUS of NAMES")
		}
		for _, names := range words[2:] {
			o.of = append(o.of, s.all(names)...)
		}
		for _, name := range o.of {
			if _, found := s.services[name]; !found {
				s.serviceOf(name)
			}
		}
	}
	for _, id := range checkers {
		o.checker = id
		s.opinions = append(s.opinions, o)
	}
}

// serviceOf finds the service of an endpoint.
func (s *script) serviceOf(address string) string {
	s.Helper()
	for name, service := range s.services {
		for i := range service.Localities {
			for _, e := range service.Localities[i].Endpoints {
				if e.Address == address {
					return name
				}
			}
		}
	}
	s.Failf("no endpoint %q", address)
	return ""
}

func (s *script) reconnect(checkers []string) {
	s.connected = slices.Clone(s.connected)
	for i := range s.connected {
		if c := &s.connected[i]; slices.Contains(checkers, c.ID) {
			c.Since = s.now.Add(time.Millisecond)
		}
	}
}

func (s *script) operate(verb, name string, more []string) {
	s.Helper()
	switch {
	case verb == "sets" && len(more) == 1:
		s.operators = s.operators.With(health.Override{Key: health.Key{Service: s.serviceOf(name), Address: name}, Status: s.status(more[0])})
	case verb == "accepts":
		var zones []isobar.Locality
		for _, at := range more {
			zones = append(zones, isobar.MustLocality(at))
		}
		if !s.monitor.VerdictTable().Release(name, zones...) {
			s.Failf("nothing of %s is held", name)
		}
	case verb == "can't" && name == "accept" && len(more) == 1:
		if s.monitor.VerdictTable().Release(more[0]) {
			s.Failf("accepted, though nothing of %s should be held", more[0])
		}
	default:
		s.Failf("operators can't do that")
	}
	s.look()
}

// client reads "succeed in SERVICE ZONE…" or "see ENDPOINT STATUS".
func (s *script) client(words []string) {
	s.Helper()
	switch words[0] {
	case "succeed":
		s.clients = &health.ClientReports{}
		for _, at := range words[3:] {
			s.clients.Served = append(s.clients.Served, health.Served{Service: words[2], Locality: isobar.MustLocality(at)})
		}
		s.look()
	case "see":
		service := s.serviceOf(words[1])
		spec, _ := s.topology.Service(service)
		for i := range spec.Localities {
			for j := range spec.Localities[i].Endpoints {
				e := &spec.Localities[i].Endpoints[j]
				if got := s.monitor.Table(s.operators).Status(service, e); e.Address == words[1] && got != s.status(words[2]) {
					s.Failf("clients see %s %s, want %s", words[1], got, words[2])
				}
			}
		}
	default:
		s.Failf("clients can't do that")
	}
}

func (s *script) pass(length string) {
	s.Helper()
	d, err := time.ParseDuration(length)
	if err != nil || d%interval != 0 || d <= 0 {
		s.Failf("%q is no multiple of %s", length, interval)
	}
	s.run(d)
}

// flags lists what is true of a verdict.
func flags(v *health.Verdict) (out []string) {
	for _, f := range []struct {
		is   bool
		name string
	}{{v.Frozen, "frozen"}, {v.Divided, "divided"}, {v.Pending, "pending"}, {v.Held, "held"}, {v.FailOpen, "fail-open"}} {
		if f.is {
			out = append(out, f.name)
		}
	}
	return out
}

func (s *script) expectVerdict(address string, words []string, why string) {
	s.Helper()
	for _, v := range s.monitor.VerdictTable().Explain(s.serviceOf(address)) {
		if v.Address != address {
			continue
		}
		got := append([]string{v.Status.String()}, flags(&v)...)
		if !slices.Equal(got, words) {
			s.Failf("%s is %s: %s; want %s", address, strings.Join(got, " "), v.Why, strings.Join(words, " "))
		}
		if !strings.Contains(v.Why, why) {
			s.Failf("%s is %s: %s; want %q in it", address, strings.Join(got, " "), v.Why, why)
		}
		return
	}
	s.Failf("%s is not probed", address)
}

// expectCounts reads "3 unhealthy 1 held": what is not named there is not.
func (s *script) expectCounts(service string, words []string) {
	s.Helper()
	if len(words) == 0 || len(words)%2 != 0 {
		s.Failf("want NUMBER VERDICT pairs")
	}
	got, want := map[string]int{}, map[string]int{}
	for _, v := range s.monitor.VerdictTable().Explain(service) {
		for _, word := range append(flags(&v), v.Status.String()) {
			got[word]++
		}
	}
	for i := 0; i < len(words); i += 2 {
		want[words[i+1]] = s.Number(words[i])
	}
	for word := range got {
		if _, found := want[word]; !found {
			want[word] = 0
		}
	}
	for word, n := range want {
		if got[word] != n {
			s.Failf("%s has %v, want %d %s", service, got, n, word)
		}
	}
	// The summary, which metrics show, counts the same.
	sum := s.monitor.VerdictTable().Summary(service)
	down := got["unhealthy"] + got["timeout"] + got["draining"]
	if sum.Healthy != got["healthy"] || sum.Degraded != got["degraded"] || sum.Down != down || sum.Unknown != got["unknown"] ||
		sum.Frozen != got["frozen"] || sum.Divided != got["divided"] || sum.Pending != got["pending"] || sum.Held != got["held"] ||
		sum.FailOpen != (got["fail-open"] > 0) {
		s.Failf("%s has %v, but its summary is %+v", service, got, sum)
	}
}

// expectAlarm reads "alarm of SERVICE in ZONE…" or "no alarm".
func (s *script) expectAlarm(words []string, text string) {
	s.Helper()
	alarms := s.monitor.VerdictTable().Alarms()
	if words[0] == "no" {
		if len(alarms) != 0 {
			s.Failf("alarms: %+v", alarms)
		}
		return
	}
	if len(words) < 5 || words[1] != "of" || words[3] != "in" {
		s.Failf("want: alarm of SERVICE in ZONES")
	}
	for i := range alarms {
		a := &alarms[i]
		if a.Service != words[2] {
			continue
		}
		var zones []string
		for _, l := range a.Localities {
			zones = append(zones, l.String())
		}
		if !slices.Equal(zones, words[4:]) || !strings.Contains(a.Why, text) {
			s.Failf("alarm in %v: %s; want %v and %q", zones, a.Why, words[4:], text)
		}
		return
	}
	s.Failf("no alarm of %s: %+v", words[2], alarms)
}
