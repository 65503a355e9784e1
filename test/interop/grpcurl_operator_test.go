package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/health"
)

// probed is a service whose endpoints checkers probe, one each.
const probed = split + `
- name: probed
  checkers: {count: 1, domains: 1}
  health_checks: [{http: {path: /healthz}, interval: 1s, timeout: 500ms, unhealthy_threshold: 1, healthy_threshold: 1}]
  localities:
  - {locality: us/a, endpoints: ["127.0.0.1:3", "127.0.0.1:4", "127.0.0.1:5"]}
`

// call sends one request by grpcurl and decodes what it prints.
func (s *isobar) call(method, request string, into any) error {
	path := goTool(s.t, "github.com/fullstorydev/grpcurl/cmd/grpcurl", grpcurlVersion)
	out, err := exec.CommandContext(s.t.Context(), path, "-plaintext", "-d", request, s.xds, method).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return json.Unmarshal(out, into)
}

// clientStatus is the part of an answer of CSDS that the test looks at.
type clientStatus struct {
	Config []struct {
		Node    struct{ ID string }
		Configs []struct {
			Name         string
			ConfigStatus string
			ClientStatus string
			XdsConfig    map[string]any
			ErrorState   struct{ Details string }
		} `json:"genericXdsConfigs"` //nolint:tagliatelle // as grpcurl prints it
	}
}

// statusByHand: CSDS tells a client that accepted from one that refused and from
// one that says nothing, by single request and by stream.
func (s *isobar) statusByHand() {
	t := s.t
	const service = "envoy.service.status.v3.ClientStatusDiscoveryService/"
	for _, who := range []string{"good", "bad", "silent"} {
		h := grpcurl(t, s.xds, "envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints")
		h.send(t, `{`+node("status-"+who)+`, "resource_names": ["split"], "type_url": "`+endpointsURL+`"}`)
		m := h.receive(t)
		switch who {
		case "good":
			h.send(t, answer(m, ""))
		case "bad":
			h.send(t, answer(m, "not to my taste"))
		}
	}
	want := []string{"status-good split SYNCED ACKED ", "status-bad split ERROR NACKED not to my taste", "status-silent split STALE REQUESTED "}
	short := func(r *clientStatus) (out []string, contents int) {
		for _, c := range r.Config {
			for _, x := range c.Configs {
				out = append(out, fmt.Sprintf("%s %s %s %s %s", c.Node.ID, x.Name, x.ConfigStatus, x.ClientStatus, x.ErrorState.Details))
				if x.XdsConfig["clusterName"] == "split" {
					contents++
				}
			}
		}
		slices.SortFunc(out, func(a, b string) int { // the order in which they connected is not certain
			return slices.Index(want, a) - slices.Index(want, b)
		})
		return out, contents
	}
	await(t, "status of three clients", func() error {
		var r clientStatus
		if err := s.call(service+"FetchClientStatus", `{"node_matchers": [{"node_id": {"prefix": "status-"}}]}`, &r); err != nil {
			return err
		}
		if got, contents := short(&r); !slices.Equal(got, want) || contents != 3 {
			return fmt.Errorf("%q, %d with content", got, contents)
		}
		return nil
	})
	h := grpcurl(t, s.xds, service+"StreamClientStatus")
	for _, tc := range []struct{ request, want string }{
		{`{"node_matchers": [{"node_id": {"safe_regex": {"regex": "status-g.*"}}}], "exclude_resource_contents": true}`, want[0]},
		{`{"node_matchers": [{"node_id": {"exact": "STATUS-BAD", "ignore_case": true}}], "exclude_resource_contents": true}`, want[1]},
	} {
		h.send(t, tc.request)
		data, err := json.Marshal(h.receive(t))
		if err != nil {
			t.Fatal(err)
		}
		var r clientStatus
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatal(err)
		}
		if got, contents := short(&r); len(got) != 1 || got[0] != tc.want || contents != 0 {
			t.Errorf("%s: %q, %d with content", tc.request, got, contents)
		}
	}
	if err := s.call(service+"FetchClientStatus", `{"node_matchers": [{"node_metadatas": [{}]}]}`, nil); err == nil || !strings.Contains(err.Error(), "metadata of nodes is not kept") {
		t.Errorf("a matcher that can't be obeyed: %v", err)
	}
}

// probesByHand: a checker is told what to probe, and what it reports is told to
// clients.
func (s *isobar) probesByHand() {
	t := s.t
	h := grpcurl(t, s.xds, "envoy.service.health.v3.HealthDiscoveryService/StreamHealthCheck")
	h.send(t, `{"health_check_request": {`+node("checker-by-hand")+`, "capability": {"health_check_protocols": ["HTTP"]}}}`)
	specifier := fmt.Sprint(h.receive(t))
	for !strings.Contains(specifier, "/healthz") {
		specifier = fmt.Sprint(h.receive(t)) // what comes first may be that there is nothing to do
	}
	if n := strings.Count(specifier, "portValue"); n != 3 || !strings.Contains(specifier, "probed") {
		t.Errorf("%d endpoints to probe, want 3: %s", n, specifier)
	}
	states := map[int]string{3: "HEALTHY", 4: "HEALTHY", 5: "HEALTHY"}
	report := func() {
		var endpoints []string
		for port, state := range states {
			endpoints = append(endpoints, fmt.Sprintf(
				`{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}}}, "health_status": %q}`, port, state))
		}
		h.send(t, `{"endpoint_health_response": {"cluster_endpoints_health": [{"cluster_name": "probed", "locality_endpoints_health": [
			{"locality": {"region": "us", "zone": "a"}, "endpoints_health": [`+strings.Join(endpoints, ",")+`]}]}]}}`)
	}
	reported := func(healthy, down int) {
		t.Helper()
		await(t, fmt.Sprintf("verdict: %d healthy, %d down", healthy, down), func() error {
			report()
			time.Sleep(500 * time.Millisecond) //nolint:forbidigo // real processes: two reports a second
			var list admin.VerdictList
			if err := s.get("/v1/verdicts?service=probed", &list); err != nil {
				return err
			}
			return counted(list.Services, healthy, down)
		})
	}
	reported(3, 0)
	eds := grpcurl(t, s.xds, "envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints")
	eds.send(t, `{`+node("probed-by-hand")+`, "resource_names": ["probed"], "type_url": "`+endpointsURL+`"}`)
	if m := fmt.Sprint(eds.receive(t)); strings.Contains(m, "UNHEALTHY") {
		t.Errorf("unhealthy before any report said so: %s", m)
	}
	states[5] = "UNHEALTHY"
	reported(2, 1)
	again := grpcurl(t, s.xds, "envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints")
	again.send(t, `{`+node("probed-by-hand-2")+`, "resource_names": ["probed"], "type_url": "`+endpointsURL+`"}`)
	if m := fmt.Sprint(again.receive(t)); strings.Count(m, "UNHEALTHY") != 1 {
		t.Errorf("one endpoint is down, told: %s", m)
	}
}

// counted compares what stands of the one service with what is wanted.
func counted(services []health.ServiceReport, healthy, down int) error {
	if len(services) != 1 {
		return errors.New("no verdicts of the service")
	}
	if sum := services[0].Summary; sum.Healthy != healthy || sum.Down != down {
		return fmt.Errorf("%+v", sum)
	}
	return nil
}
