package xds_test

import (
	"cmp"
	"strings"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// TestScripts plays the scripts in testdata/script, which are the specification of the
// protocol: what clients say, and what the server answers. A script consists of scenarios
// that begin with "== what the scenario shows". The lines of a scenario:
//
//	publish a=1 b=2 -c d+orca   the next plan: endpoints of a and b, no c, another cluster of d;
//	                            what the line does not name stays
//	c opens sotw in us-east/b   a client opens an aggregated stream, of state of the world or delta
//	c > eds a b                 it subscribes to names: to all of them (state of the world),
//	                            or to these too (delta; -a unsubscribes)
//	c > eds stale a b           the same, with the nonce of the response before the last one
//	c > eds unanswered a b      the same, without a nonce
//	c > eds knows a b           the first request of a stream: the client says what it has from
//	                            the stream before, or a version of its own where it had nothing
//	c > accepts eds             it accepts the last response
//	c > rejects eds: why        it rejects the last response
//	c < eds v1: a@1 b@2         what it has been sent since: responses in this order and no others
//	c < nothing
//	c closes
//	# a comment
func TestScripts(t *testing.T) {
	testhelp.Scripts(t, func(t *testing.T, lines []testhelp.ScriptLine) {
		t.Helper()
		inWorld(t, func(w *world) {
			(&script{Script: testhelp.Script{T: w.t}, w: w, clients: map[string]*client{}, before: map[string]string{}, had: map[string]string{}}).play(lines)
		})
	})
}

// script is one scenario.
type script struct {
	testhelp.Script

	w       *world
	clients map[string]*client
	before  map[string]string // nonce of the response before the last one, by client and type
	had     map[string]string // version by client, type and, for delta, resource
}

func (s *script) play(lines []testhelp.ScriptLine) {
	s.w.t.Helper()
	for i := 0; i < len(lines); i++ {
		s.At = lines[i].At
		words := strings.Fields(lines[i].Text)
		switch {
		case words[0] == "publish":
			synctest.Wait() // what came before is over
			s.w.publish(s.edits(words[1:])...)
			continue
		case len(words) < 2:
			s.Failf("neither sends nor expects anything: %q", lines[i].Text)
		}
		name, c := words[0], s.clients[words[0]]
		if c == nil && words[1] != "opens" {
			s.Failf("%s has not opened a stream", name)
		}
		switch words[1] {
		case "opens":
			s.clients[name] = s.open(words[2:])
		case "closes":
			c.close()
		case ">":
			s.send(name, c, words[2:])
		case "<":
			want := []string{strings.Join(words[2:], " ")}
			for i+1 < len(lines) && strings.HasPrefix(lines[i+1].Text, name+" < ") {
				i++
				want = append(want, strings.Join(strings.Fields(lines[i].Text)[2:], " "))
			}
			if want[0] == "nothing" {
				want = nil
			}
			s.expect(name, c, want)
		default:
			s.Failf("unknown: %q", lines[i].Text)
		}
	}
	for name, c := range s.clients {
		if c.stream.Context().Err() == nil {
			s.expect(name, c, nil)
		}
	}
}

func (s *script) edits(words []string) []edit {
	var out []edit
	for _, word := range words {
		name, port, serves := strings.Cut(word, "=")
		switch gone, leaves := strings.CutPrefix(word, "-"); {
		case leaves:
			out = append(out, without(gone))
		case strings.HasSuffix(word, "+orca"):
			out = append(out, withORCA(strings.TrimSuffix(word, "+orca")))
		case serves:
			n := s.Number(port)
			if service, locality, at := strings.Cut(name, "@"); at {
				out = append(out, serveAt(service, locality, n))
			} else {
				out = append(out, serve(name, n))
			}
		default:
			s.Failf("no change of a service: %q", word)
		}
	}
	return out
}

// open reads "sotw in LOCALITY".
func (s *script) open(words []string) *client {
	var node *corev3.Node
	if len(words) == 3 && words[1] == "in" {
		node = at(words[2])
	} else if len(words) != 1 {
		s.Failf("want VARIANT in LOCALITY")
	}
	switch words[0] {
	case "sotw":
		return s.w.ads(node)
	case "delta":
		return s.w.delta(node)
	}
	s.Failf("unknown variant %q", words[0])
	return nil
}

var scriptURLs = map[string]string{"eds": resource.EndpointsURL, "cds": resource.ClusterURL, "lds": resource.ListenerURL, "rds": resource.RouteURL}

func (s *script) send(name string, c *client, words []string) {
	s.w.t.Helper()
	verb := ""
	if words[0] == "accepts" || words[0] == "rejects" {
		verb, words = words[0], words[1:]
	}
	kind := strings.TrimSuffix(words[0], ":")
	url := scriptURLs[kind]
	if url == "" {
		s.Failf("unknown type %q", words[0])
	}
	words = words[1:]
	switch verb {
	case "accepts":
		c.ack(url)
		return
	case "rejects":
		c.nack(url, strings.Join(words, " "))
		return
	}
	if len(words) > 0 && words[0] == "knows" {
		s.sendKnown(name, c, url, words[1:])
		return
	}
	shown := *c.kind(url)
	if len(words) > 0 && (words[0] == "stale" || words[0] == "unanswered") {
		c.kind(url).nonce = ""
		if words[0] == "stale" {
			c.kind(url).nonce = s.before[name+url]
		}
		words = words[1:]
	}
	if c.delta {
		nonce := ""
		if c.kind(url).nonce != shown.nonce {
			nonce = c.kind(url).nonce
		}
		r := &discoveryv3.DeltaDiscoveryRequest{Node: c.node, TypeUrl: url, ResponseNonce: nonce}
		for _, n := range words {
			if gone, leaves := strings.CutPrefix(n, "-"); leaves {
				r.ResourceNamesUnsubscribe = append(r.ResourceNamesUnsubscribe, gone)
			} else {
				r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, n)
			}
		}
		c.send(r)
	} else {
		c.request(url, words...)
	}
	c.kind(url).nonce = shown.nonce
}

// sendKnown sends the first request of a client that was connected before.
func (s *script) sendKnown(name string, c *client, url string, names []string) {
	s.w.t.Helper()
	if !c.delta {
		c.send(&discoveryv3.DiscoveryRequest{Node: c.node, TypeUrl: url, VersionInfo: s.had[name+url], ResourceNames: names})
		return
	}
	initial := map[string]string{}
	for _, n := range names {
		initial[n] = cmp.Or(s.had[name+url+n], "its own")
	}
	c.deltaRequest(url, initial, names...)
}

func (s *script) expect(name string, c *client, want []string) {
	s.w.t.Helper()
	last := map[string]string{}
	for url, seen := range c.kinds {
		last[url] = seen.nonce
	}
	var got []string
	for _, m := range c.take() {
		got = append(got, describe(s.w.t, m))
		if delta, ok := m.(*discoveryv3.DeltaDiscoveryResponse); ok {
			for _, r := range delta.GetResources() {
				s.had[name+delta.GetTypeUrl()+r.GetName()] = r.GetVersion()
			}
		}
	}
	for url, seen := range c.kinds {
		s.had[name+url] = seen.version
		if seen.nonce != last[url] {
			s.before[name+url] = last[url]
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		s.Failf("%s got\n\t%s\nwant\n\t%s", name, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}
