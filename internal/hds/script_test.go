package hds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/hds/convert"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestScripts plays the scripts in testdata/script, which are the specification of health
// discovery: what checkers say, what they are told to probe, and what the loop collects. Each
// service has the endpoints 1 and 2 in r/a and 3 in r/b, and a TCP check. The lines of a
// scenario:
//
//	server interval=4s wait=7s streams=1   its settings
//	c connects                       a checker opens a stream, and says nothing
//	c enters in r/a                  it opens a stream and says who it is, and that it can probe HTTP
//	                                 and TCP ("as NAME": its node.id, where that is another)
//	services cart pay~               which services there are (~: it is probed in another way)
//	c d probe cart pay/1             what checkers are designated to, of these services
//	c < cart 1 2 3, pay 1            what it is told since, these specifiers and no others: endpoints
//	                                 by service; a service without endpoints is drained
//	c < nothing
//	c < no services                  a specifier without services
//	c > cart/1 healthy, pay/3 timeout    a report (pay/3@r/a: as of another locality)
//	c > flat cart/1 healthy          the same in the form of old builds
//	c > nothing                      a message without content
//	collected cart/1 healthy by c, pay/3 timeout by c    what the loop reads, by service and endpoint
//	collected nothing
//	checkers c d                     those that are connected, as the loop knows them
//	ended c on cart pay              which checkers ended on what was new to them
//	news / no news                   whether the loop was woken since it was asked last
//	c ends Aborted: text             how its stream has ended, and a part of the reason
//	c leaves
//	10s pass
//	server stops
//	# a comment
func TestScripts(t *testing.T) {
	testhelp.Scripts(t, func(t *testing.T, lines []testhelp.ScriptLine) {
		t.Helper()
		s := &script{Script: testhelp.Script{T: t}, clients: map[string]*actor{}, hosts: map[string]byte{}}
		var opts hds.Options
		if words := strings.Fields(lines[0].Text); words[0] == "server" {
			s.At = lines[0].At
			s.configure(&opts, words[1:])
			lines = lines[1:]
		}
		inBubble(t, opts, func(h *harness) {
			s.harness, s.T = h, h.t
			s.play(lines)
		})
	})
}

// script is one scenario.
type script struct {
	*harness
	testhelp.Script

	clients  map[string]*actor
	hosts    map[string]byte // third byte of a service's addresses
	services []isobar.Service
	probes   []health.Designation
}

// actor is a checker whose messages are kept until the script asks for them.
type actor struct {
	*client
	testhelp.Heard[*healthv3.HealthCheckSpecifier]
}

func (s *script) configure(opts *hds.Options, words []string) {
	s.T.Helper()
	s.Settings(words, map[string]func(string){
		"interval": func(v string) { opts.Interval = every(s.Duration(v)) },
		"wait":     func(v string) { opts.DesignationWait = s.Duration(v) },
		"streams":  func(v string) { opts.MaxStreams = s.Number(v) },
	})
}

func (s *script) play(lines []testhelp.ScriptLine) {
	s.T.Helper()
	for _, line := range lines {
		s.At = line.At
		words := strings.Fields(line.Text)
		rest := strings.Join(words[1:], " ")
		switch {
		case words[0] == "services":
			s.services = nil
			for _, w := range words[1:] {
				s.services = append(s.services, s.service(w))
			}
		case slices.Contains(words, "probe"):
			s.designate(words)
		case words[0] == "collected":
			s.expect("collected", s.collected(), rest)
		case words[0] == "checkers":
			s.expect("checkers", strings.Join(s.ids(), " "), rest)
		case words[0] == "ended":
			s.expect("ended", s.ended(), rest)
		case line.Text == "news" || line.Text == "no news":
			if got := s.signalled(); got != (line.Text == "news") {
				s.Failf("news: %t", got)
			}
		case line.Text == "server stops":
			s.srv.Stop()
		case len(words) == 2 && words[1] == "pass":
			pass(s.Duration(words[0]))
		case len(words) > 1:
			s.checker(words[0], words[1], strings.Join(words[2:], " "))
		default:
			s.Failf("unknown: %q", line.Text)
		}
		synctest.Wait()
	}
	for _, c := range s.clients {
		c.cancel()
	}
	synctest.Wait()
}

func (s *script) expect(what, got, want string) {
	s.T.Helper()
	if got != strings.TrimPrefix(want, "nothing") {
		s.Failf("%s %q, want %q", what, got, want)
	}
}

// service is one that is probed; NAME~ is the same probed half as often.
func (s *script) service(word string) isobar.Service {
	name, other := strings.CutSuffix(word, "~")
	if s.hosts[name] == 0 {
		s.hosts[name] = byte(len(s.hosts) + 1)
	}
	check := tcpCheck()
	if other {
		check.Interval *= 2
	}
	return service(name, s.hosts[name], check)
}

// designate reads "c d probe cart pay/1"; others keep what they have.
func (s *script) designate(words []string) {
	s.T.Helper()
	verb := slices.Index(words, "probe")
	var keys []health.Key
	for _, w := range words[verb+1:] {
		name, only, _ := strings.Cut(w, "/")
		for _, n := range []string{"1", "2", "3"} {
			if only == "" || only == n {
				keys = append(keys, health.Key{Service: name, Address: s.address(name + "/" + n)})
			}
		}
	}
	for _, id := range words[:verb] {
		s.probes = slices.DeleteFunc(s.probes, func(d health.Designation) bool { return d.Checker == id })
		s.probes = append(s.probes, health.Designation{Checker: id, Endpoints: keys})
	}
	s.srv.Designate(topology(s.services...), slices.Clone(s.probes))
}

// address is that of "cart/1".
func (s *script) address(word string) string {
	s.T.Helper()
	name, n, _ := strings.Cut(word, "/")
	if s.hosts[name] == 0 {
		s.hosts[name] = byte(len(s.hosts) + 1)
	}
	return fmt.Sprintf("10.0.%d.%d:80", s.hosts[name], s.Number(n))
}

// named is the inverse of address.
func (s *script) named(address string) string {
	for name, host := range s.hosts {
		if rest, found := strings.CutPrefix(address, fmt.Sprintf("10.0.%d.", host)); found {
			return name + "/" + strings.TrimSuffix(rest, ":80")
		}
	}
	return address
}

func (s *script) checker(name, verb, text string) {
	s.T.Helper()
	c := s.clients[name]
	if c == nil && verb != "connects" && verb != "enters" {
		s.Failf("%s has not opened a stream", name)
	}
	switch verb {
	case "connects":
		s.clients[name] = s.connect()
	case "enters":
		s.clients[name] = s.connect()
		id := name
		where, as, found := strings.Cut(strings.TrimPrefix(text, "in "), " as ")
		if found {
			id = as
		}
		s.clients[name].send(hello(id, where))
	case "<":
		s.expect(name+" was told", strings.Join(s.take(c), "; "), text)
	case ">":
		c.send(s.report(text))
	case "ends":
		c.Ended(&s.Script, name, text)
	case "leaves":
		c.cancel()
	default:
		s.Failf("checkers can't do that: %q", verb)
	}
}

// connect opens a stream and keeps what comes.
func (s *script) connect() *actor {
	c := &actor{client: s.open()}
	go c.Listen(c.stream.Recv)
	return c
}

// take describes the specifiers since the last call.
func (s *script) take(c *actor) (out []string) {
	s.T.Helper()
	for _, m := range c.Take() {
		if err := convert.CheckSpecifier(m); err != nil {
			s.Failf("a specifier that breaks the rules: %v", err)
		}
		var parts []string
		for _, cluster := range m.GetClusterHealthChecks() {
			words := []string{cluster.GetClusterName()}
			for _, l := range cluster.GetLocalityEndpoints() {
				for _, e := range l.GetEndpoints() {
					_, n, _ := strings.Cut(s.named(e.GetAddress().GetSocketAddress().GetAddress()+":80"), "/")
					words = append(words, n)
				}
			}
			parts = append(parts, strings.Join(words, " "))
		}
		slices.Sort(parts)
		if len(parts) == 0 {
			parts = []string{"no services"}
		}
		out = append(out, strings.Join(parts, ", "))
	}
	return out
}

// report reads "cart/1 healthy, pay/3@r/a timeout", after "flat" in the form of old builds.
func (s *script) report(text string) *request {
	s.T.Helper()
	text, isFlat := strings.CutPrefix(text, "flat ")
	if text == "nothing" {
		return &request{}
	}
	m := &response{}
	for part := range strings.SplitSeq(text, ", ") {
		word, state, _ := strings.Cut(part, " ")
		word, where, elsewhere := strings.Cut(word, "@")
		name, n, _ := strings.Cut(word, "/")
		code, known := corev3.HealthStatus_value[strings.ToUpper(state)]
		if !known {
			s.Failf("no status: %q", part)
		}
		one := endpoint(s.address(word), corev3.HealthStatus(code))
		switch {
		case isFlat:
			m.EndpointsHealth = append(m.EndpointsHealth, one) //nolint:staticcheck // the one form of old builds
			continue
		case elsewhere:
		case n == "3":
			where = "r/b"
		default:
			where = "r/a"
		}
		g := grouped(name, where, one)
		m.ClusterEndpointsHealth = append(m.ClusterEndpointsHealth, g.GetClusterEndpointsHealth()...)
	}
	return &request{RequestType: &healthv3.HealthCheckRequestOrEndpointHealthResponse_EndpointHealthResponse{EndpointHealthResponse: m}}
}

func (s *script) collected() string {
	synctest.Wait()
	var out []string
	for _, r := range s.srv.Collect(time.Now()) {
		_, n, _ := strings.Cut(s.named(r.Address), "/")
		out = append(out, fmt.Sprintf("%s/%s %s by %s", r.Service, n, r.Status, r.Checker))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (s *script) ended() string {
	var out []string
	for _, e := range s.srv.Ended() {
		out = append(out, e.Checker+" on "+strings.Join(e.Services, " "))
	}
	return strings.Join(out, ", ")
}
