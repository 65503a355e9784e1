package lrs_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestScripts plays the scripts in testdata/script, which are the specification of load
// reporting: what clients say, what the server answers, and what the loop collects. The lines
// of a scenario:
//
//	server interval=5s services=a,b streams=2 by-endpoint
//	                                 its settings; of a later line, the interval and the services count
//	c connects                       a client opens a stream, and says nothing
//	c opens as envoy                 a client opens a stream and says who it is (envoy, grpc-go, grpc-core)
//	c opens as envoy with all        the same, and that it can report on all clusters
//	c > a 1000 in 10s                it reports requests and the time that it counted them (several
//	                                 services: "a 1000 in 10s, b 5 in 10s"; "a 1000 in 10s endpoints"
//	                                 tells of an endpoint, too)
//	c > node other, a 700 in 5s      the same, and who it is, again
//	c < all every 5s                 what it has been sent since, these messages and no others
//	c < a b every 5s
//	c < nothing
//	c ends InvalidArgument: text     how its stream has ended, and a part of the reason
//	10s pass
//	collected c in us-east/a: a 1000 in 10s    what the loop reads, a line for each report ("closed": the
//	                                 stream has ended; "refused a": of what is implausible)
//	collected nothing
//	server stops
//	# a comment
func TestScripts(t *testing.T) {
	testhelp.Scripts(t, func(t *testing.T, lines []testhelp.ScriptLine) {
		t.Helper()
		s := &script{interval: lrs.DefaultInterval, clients: map[string]*actor{}}
		opts := lrs.Options{Interval: func() time.Duration { return s.interval }, Services: func() []string { return s.services }}
		if words := strings.Fields(lines[0].Text); words[0] == "server" {
			s.Script = testhelp.Script{T: t, At: lines[0].At}
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

	interval time.Duration
	services []string
	clients  map[string]*actor
}

// actor is a client whose messages are kept until the script asks for them.
type actor struct {
	*client
	testhelp.Heard[string]
}

func (s *script) play(lines []testhelp.ScriptLine) {
	s.T.Helper()
	for i := 0; i < len(lines); i++ {
		s.At = lines[i].At
		words := strings.Fields(lines[i].Text)
		c := s.clients[words[0]]
		switch {
		case words[0] == "server":
			s.change(words[1:])
		case words[0] == "collected":
			want := []string{strings.TrimPrefix(lines[i].Text, "collected ")}
			for i+1 < len(lines) && strings.HasPrefix(lines[i+1].Text, "collected ") && lines[i+1].Text != "collected nothing" {
				i++
				want = append(want, strings.TrimPrefix(lines[i].Text, "collected "))
			}
			s.collected(want)
		case len(words) == 2 && words[1] == "pass":
			pass(s.Duration(words[0]))
		case len(words) < 2 || (c == nil && words[1] != "connects" && words[1] != "opens"):
			s.Failf("unknown: %q", lines[i].Text)
		default:
			s.client(words[0], c, words[1], strings.Join(words[2:], " "))
		}
		synctest.Wait()
	}
	for _, c := range s.clients {
		c.cancel()
	}
	synctest.Wait()
}

func (s *script) client(name string, c *actor, verb, text string) {
	s.T.Helper()
	switch verb {
	case "connects":
		s.clients[name] = s.connect()
	case "opens":
		s.clients[name] = s.connect()
		s.clients[name].send(&loadstatsv3.LoadStatsRequest{Node: s.node(name, text)})
	case ">":
		c.send(s.report(text))
	case "<":
		if got := strings.Join(c.Take(), "\n"); got != strings.TrimPrefix(text, "nothing") {
			s.Failf("%s was sent %q, want %q", name, got, text)
		}
	case "ends":
		c.Ended(&s.Script, name, text)
	case "closes":
		c.cancel()
	default:
		s.Failf("clients can't do that: %q", verb)
	}
}

// connect opens a stream and keeps what comes.
func (s *script) connect() *actor {
	c := &actor{client: s.open()}
	go c.Listen(func() (string, error) {
		m, err := c.stream.Recv()
		if err != nil {
			return "", err
		}
		return describe(m), nil
	})
	return c
}

func describe(m *loadstatsv3.LoadStatsResponse) string {
	words := slices.Clone(m.GetClusters())
	if m.GetSendAllClusters() {
		words = append(words, "all")
	}
	if m.GetReportEndpointGranularity() {
		words = append(words, "by endpoint")
	}
	return strings.Join(append(words, "every", m.GetLoadReportingInterval().AsDuration().String()), " ")
}

// configure reads the settings of a server before it starts.
func (s *script) configure(opts *lrs.Options, words []string) {
	s.T.Helper()
	s.Settings(words, map[string]func(string){
		"interval": func(v string) { s.interval = s.Duration(v) },
		"services": func(v string) {
			s.services = strings.FieldsFunc(v, func(r rune) bool { return r == ',' })
		},
		"streams":     func(v string) { opts.MaxStreams = s.Number(v) },
		"by-endpoint": func(string) { opts.EndpointGranularity = true },
	})
}

func (s *script) change(words []string) {
	s.T.Helper()
	if slices.Equal(words, []string{"stops"}) {
		s.srv.Stop()
		return
	}
	var ignored lrs.Options
	s.configure(&ignored, words)
	s.srv.Refresh()
}

// node reads "as AGENT with all".
func (s *script) node(name, text string) *corev3.Node {
	s.T.Helper()
	agents := map[string]string{"envoy": "envoy", "grpc-go": "gRPC Go", "grpc-core": "gRPC C-core 1.51"}
	agent, all := strings.CutSuffix(strings.TrimPrefix(text, "as "), " with all")
	if agents[agent] == "" {
		s.Failf("unknown client: %q", text)
	}
	var features []string
	if all {
		features = append(features, rpc.FeatureSendAllClusters)
	}
	n := node(agents[agent], features...)
	n.Id = name
	return n
}

// report reads "a 1000 in 10s, b 5 in 10s", after "node NAME," if it is to hold one.
func (s *script) report(text string) *loadstatsv3.LoadStatsRequest {
	s.T.Helper()
	m := &loadstatsv3.LoadStatsRequest{}
	for part := range strings.SplitSeq(text, ", ") {
		words := strings.Fields(part)
		if len(words) == 2 && words[0] == "node" {
			m.Node = node("envoy")
			m.Node.Id, m.Node.Locality = words[1], nil
			continue
		}
		if len(words) < 4 || words[2] != "in" {
			s.Failf("want SERVICE REQUESTS in TIME, got %q", part)
		}
		one := stats(words[0], s.requests(words[1]), s.Duration(words[3]))
		if len(words) == 5 {
			one.UpstreamLocalityStats[0].UpstreamEndpointStats = []*endpointv3.UpstreamEndpointStats{{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: "10.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
				}}}, TotalIssuedRequests: s.requests(words[1]),
			}}
		}
		m.ClusterStats = append(m.ClusterStats, one)
	}
	return m
}

// collected compares what the loop reads.
func (s *script) collected(want []string) {
	s.T.Helper()
	synctest.Wait()
	got := []string{}
	for _, w := range s.srv.Collect(time.Now()) {
		who := w.Node.ID + " in " + w.Node.Locality.String() + ": "
		for i := range w.Reports {
			got = append(got, who+describeReport(&w.Reports[i]))
		}
		if !w.Closed.IsZero() {
			got = append(got, who+"closed")
		}
	}
	if len(got) == 0 {
		got = append(got, "nothing")
	}
	if !slices.Equal(got, want) {
		s.Failf("collected\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func describeReport(r *load.Report) string {
	var parts []string
	for i := range r.Services {
		x := &r.Services[i]
		issued, more := uint64(0), ""
		for j := range x.Localities {
			issued += x.Localities[j].Issued
			if d := x.Localities[j].Details; d != nil && len(d.Endpoints) > 0 {
				more = " endpoints"
			}
		}
		parts = append(parts, fmt.Sprintf("%s %d in %s%s", x.Service, issued, x.Interval, more))
	}
	for _, name := range r.Refused {
		parts = append(parts, "refused "+name)
	}
	return strings.Join(parts, ", ")
}

// requests may be more than a client can send.
func (s *script) requests(word string) uint64 {
	s.T.Helper()
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		s.Failf("%v", err)
	}
	return n
}
