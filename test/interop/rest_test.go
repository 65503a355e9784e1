package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// polled is the answer to a poll.
type polled struct {
	status  string
	Version string `json:"version_info"`
	TypeURL string `json:"type_url"`
	All     []struct {
		ClusterName string `json:"cluster_name"`
		Endpoints   []struct {
			LBEndpoints []struct {
				HealthStatus string `json:"health_status"`
				Endpoint     struct {
					Address struct {
						SocketAddress struct {
							PortValue int `json:"port_value"`
						} `json:"socket_address"`
					}
				}
			} `json:"lb_endpoints"`
		}
	} `json:"resources"`
}

// ports are those of the endpoints, with what is said of their health.
func (p *polled) ports() string {
	var out []string
	for _, a := range p.All {
		for _, l := range a.Endpoints {
			for _, e := range l.LBEndpoints {
				out = append(out, strings.TrimSpace(fmt.Sprint(e.Endpoint.Address.SocketAddress.PortValue, " ", e.HealthStatus)))
			}
		}
	}
	return strings.Join(out, ", ")
}

// curl posts a body and returns the answer once it is there.
func (s *isobar) curl(path, body string, headers ...string) (polled, error) {
	args := []string{"--silent", "--show-error", "--max-time", "30", "--write-out", "\n%{http_code}", "--data-binary", "@-", "--header", "Content-Type: application/json"}
	for _, h := range headers {
		args = append(args, "--header", h)
	}
	cmd := exec.CommandContext(s.t.Context(), "curl", append(args, "http://"+s.rest+path)...)
	cmd.Stdin = strings.NewReader(body)
	out, err := cmd.Output()
	if err != nil {
		return polled{}, fmt.Errorf("curl %s: %w", path, err)
	}
	end := bytes.LastIndexByte(out, '\n')
	p := polled{status: string(out[end+1:])}
	if p.status == "200" {
		err = json.Unmarshal(out[:end], &p)
	}
	return p, err
}

// TestREST polls endpoints over HTTP with curl, in v3 and in v2, the
// fields of its requests spelled in both ways.
func TestREST(t *testing.T) {
	t.Parallel()
	for _, api := range []string{v3, v2} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			s := startIsobar(t, split)
			name := "curl (" + api + ")"
			seen.is(name, curlVersion(t), api+", REST-JSON")
			checkColumn(t, name, healthFilter, func(t *testing.T) {
				t.Helper()
				s.on(t).poll(api)
			})
			if !t.Failed() {
				seen.fact(name, "Isobar answers a poll over HTTP at once if there is a change, and otherwise with 304 at the end of the time that the client waits")
			}
		})
	}
}

// curlVersion is the second word that curl says of itself.
func curlVersion(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "curl", "--version").Output()
	words := strings.Fields(string(out))
	if err != nil || len(words) < 2 {
		t.Fatalf("curl --version: %v: %s", err, out)
	}
	return words[1]
}

// poll: the first poll is answered at once, the next one with 304 after the
// patience of the client, and one during which an endpoint drains at once.
func (s *isobar) poll(api string) {
	t := s.t
	path := "/" + api + "/discovery:endpoints"
	request := func(version string) string {
		if api == v3 {
			return `{"version_info": "` + version + `", "resource_names": ["split"], ` + node("poller") + `}`
		}
		return `{"versionInfo": "` + version + `", "resourceNames": ["split"], ` + node("poller") + `}`
	}
	first, err := s.curl(path, request(""))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{v3: endpointsURL, v2: endpointsURLv2}[api]
	if first.status != "200" || first.TypeURL != want || first.ports() != "1 HEALTHY, 2 HEALTHY" && first.ports() != "1, 2" {
		t.Fatalf("got %s %s: %s", first.status, first.TypeURL, first.ports())
	}
	s.longPoll(path, request(first.Version))
	type answer struct {
		polled

		err error
		at  time.Time
	}
	answered := make(chan answer, 1)
	go func() {
		p, err := s.curl(path, request(first.Version), "Prefer: wait=20")
		answered <- answer{p, err, time.Now()}
	}()
	await(t, "client that polls", func() error {
		_, err := s.client("poller")
		return err
	})
	s.health("split", "127.0.0.1:2", "draining")
	changed := time.Now()
	got := <-answered
	if got.err != nil || got.status != "200" || !strings.Contains(got.ports(), "2 DRAINING") {
		t.Fatalf("an endpoint drains, got %v: %s %s", got.err, got.status, got.ports())
	}
	if late := got.at.Sub(changed); late > 10*time.Second {
		t.Errorf("told %v after the change", late)
	}
	c, err := s.client("poller")
	if err != nil || c.APIVersion != api {
		t.Errorf("the server says of it: %v, %+v", err, c)
	}
}

// longPoll: a client that waits 2 s is told after 1.6 s that nothing has changed,
// before it gives up, in one of three polls at least: a machine may be busy.
func (s *isobar) longPoll(path, request string) {
	for range 3 {
		start := time.Now()
		same, err := s.curl(path, request, "X-Envoy-Expected-Rq-Timeout-Ms: 2000")
		waited := time.Since(start)
		if err != nil || same.status != "304" || waited < 1600*time.Millisecond {
			s.t.Fatalf("nothing has changed, a client that waits 2 s: %v, %s after %v; want 304 after 1.6 s", err, same.status, waited)
		}
		if waited <= 2*time.Second {
			return
		}
	}
	s.t.Error("a client that waits 2 s is always told too late that nothing has changed")
}
