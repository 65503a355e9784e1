package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/testhelp"
)

// grpcurlVersion is that of grpcurl, which learns the services by reflection.
const grpcurlVersion = "v1.9.3"

// hand is a stream that grpcurl holds open: messages by hand.
type hand struct {
	in  io.Writer
	out chan map[string]any // messages of the server
	log *testhelp.Log
}

func grpcurl(t *testing.T, address, method string) *hand {
	t.Helper()
	path := goTool(t, "github.com/fullstorydev/grpcurl/cmd/grpcurl", grpcurlVersion)
	cmd := exec.CommandContext(context.Background(), path, "-plaintext", "-d", "@", address, method)
	h := &hand{out: make(chan map[string]any, 1000), log: new(testhelp.Log)}
	cmd.Stderr = h.log
	var err error
	if h.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(h.out)
		for d := json.NewDecoder(stdout); ; {
			var m map[string]any
			if d.Decode(&m) != nil {
				return
			}
			h.out <- m
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended on its own, which the test has seen
		<-read
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("grpcurl %s: %s", method, h.log.String())
		}
	})
	return h
}

func (h *hand) send(t *testing.T, message string) {
	t.Helper()
	if _, err := fmt.Fprintln(h.in, message); err != nil {
		t.Fatal(err)
	}
}

func (h *hand) receive(t *testing.T) map[string]any {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case m, ok := <-h.out:
		if !ok {
			t.Fatalf("the stream ended: %s", h.log.String())
		}
		return m
	case <-timer.C:
		t.Fatal("no message within", patience)
	}
	return nil
}

// node is who grpcurl says it is.
func node(id string) string {
	return `"node": {"id": "` + id + `", "cluster": "web", "locality": {"region": "us", "zone": "a"}}`
}

// TestGrpcurl speaks to the services by hand: reflection, health, endpoints by
// stream and by delta, load reports, client status, health discovery.
//
//nolint:tparallel // the parts follow one another on the same endpoints
func TestGrpcurl(t *testing.T) {
	t.Parallel()
	s := startIsobar(t, probed)
	seen.is(nameGrpcurl, grpcurlVersion, "v3, reflection; EDS stream and delta, LRS, CSDS and HDS by hand")
	t.Run("reflection", func(t *testing.T) { s.on(t).reflected() })
	t.Run("delta", func(t *testing.T) { s.on(t).deltaByHand() })
	t.Run("client status", func(t *testing.T) { s.on(t).statusByHand() })
	t.Run("health discovery", func(t *testing.T) { s.on(t).probesByHand() })
	for _, scenario := range []struct {
		column string
		run    func(*isobar)
	}{{demand, (*isobar).loadByHand}, {healthFilter, (*isobar).healthByHand}, {nack, (*isobar).nackByHand}} {
		checkColumn(t, nameGrpcurl, scenario.column, func(t *testing.T) {
			t.Helper()
			scenario.run(s.on(t))
		})
	}
}

// reflected: the services and their messages are described.
func (s *isobar) reflected() {
	t := s.t
	path := goTool(t, "github.com/fullstorydev/grpcurl/cmd/grpcurl", grpcurlVersion)
	for _, tc := range []struct{ verb, what, want string }{
		{"list", "", "envoy.service.endpoint.v3.EndpointDiscoveryService"},
		{"list", "", "envoy.service.discovery.v3.AggregatedDiscoveryService"},
		{"list", "", "envoy.service.load_stats.v3.LoadReportingService"},
		{"list", "", "envoy.service.status.v3.ClientStatusDiscoveryService"},
		{"list", "", "grpc.channelz.v1.Channelz"},
		{"describe", "envoy.service.load_stats.v3.LoadStatsResponse", "send_all_clusters"},
		{"describe", "envoy.config.endpoint.v3.ClusterLoadAssignment", "cluster_name"},
		{"grpc.health.v1.Health/Check", "", `"SERVING"`},
	} {
		args := []string{"-plaintext", s.xds, tc.verb}
		if tc.what != "" {
			args = append(args, tc.what)
		}
		out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), tc.want) {
			t.Errorf("grpcurl %s %s: %v, no %s in: %s", tc.verb, tc.what, err, tc.want, out)
		}
	}
}

// loadByHand: a report of 50 requests a second is a demand of 50 requests/s.
func (s *isobar) loadByHand() {
	t := s.t
	h := grpcurl(t, s.xds, "envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats")
	h.send(t, `{`+node("by-hand")+`}`)
	told := h.receive(t)
	if told["loadReportingInterval"] != "1s" || fmt.Sprint(told["clusters"]) != "[probed split]" {
		t.Errorf("told %v, want [probed split] every second: this client did not say that it understands send_all_clusters", told)
	}
	await(t, "demand of 50 requests/s", func() error {
		h.send(t, `{"cluster_stats": [{"cluster_name": "split", "cluster_service_name": "split", "load_report_interval": "1s",
			"upstream_locality_stats": [{"locality": {"region": "us", "zone": "a"}, "total_issued_requests": "50", "total_successful_requests": "50"}]}]}`)
		time.Sleep(900 * time.Millisecond) //nolint:forbidigo // real processes: a report a second
		_, source, err := s.source("split")
		if err == nil && math.Abs(source.Demand-50) > 2 {
			err = fmt.Errorf("demand %.1f/s", source.Demand)
		}
		return err
	})
}

// healthByHand: an endpoint that drains is told at once, with its state.
func (s *isobar) healthByHand() {
	t := s.t
	h := grpcurl(t, s.xds, "envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints")
	h.send(t, `{`+node("health-by-hand")+`, "resource_names": ["split"], "type_url": "`+endpointsURL+`"}`)
	first := h.receive(t)
	h.send(t, answer(first, ""))
	s.health("split", "127.0.0.1:2", "draining")
	for {
		m := h.receive(t)
		if text := fmt.Sprint(m["resources"]); strings.Contains(text, "DRAINING") {
			break
		}
		h.send(t, answer(m, ""))
	}
	s.health("split", "127.0.0.1:2", "")
}

// nackByHand: a refusal shows with its words; the version that is refused does
// not come again, the next one does.
func (s *isobar) nackByHand() {
	t := s.t
	h := grpcurl(t, s.xds, "envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints")
	h.send(t, `{`+node("nack-by-hand")+`, "resource_names": ["split"], "type_url": "`+endpointsURL+`"}`)
	refused := h.receive(t)
	h.send(t, answer(refused, "not to my taste"))
	await(t, "refusal", func() error {
		c, err := s.client("nack-by-hand")
		if err != nil {
			return err
		}
		if n := c.Types["eds"].NACK; n == nil || n.Text != "not to my taste" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	s.health("split", "127.0.0.1:2", "draining")
	for { // shares may move, too: what was reported before fades
		m := h.receive(t)
		text := fmt.Sprint(m["resources"])
		if text == fmt.Sprint(refused["resources"]) {
			t.Errorf("what was refused came again: %v", m)
		}
		if strings.Contains(text, "DRAINING") {
			break
		}
		h.send(t, answer(m, ""))
	}
	s.health("split", "127.0.0.1:2", "")
}

// deltaByHand: subscribe, unsubscribe, subscribe to what does not exist.
func (s *isobar) deltaByHand() {
	t := s.t
	h := grpcurl(t, s.xds, "envoy.service.endpoint.v3.EndpointDiscoveryService/DeltaEndpoints")
	h.send(t, `{`+node("delta-by-hand")+`, "resource_names_subscribe": ["split", "nowhere"], "type_url": "`+endpointsURL+`"}`)
	resources, removed := "", ""
	for !strings.Contains(resources, "split") || !strings.Contains(removed, "nowhere") { // in one response or two
		m := h.receive(t)
		resources, removed = resources+fmt.Sprint(m["resources"]), removed+fmt.Sprint(m["removedResources"])
		h.send(t, answer(m, ""))
	}
	h.send(t, `{"resource_names_unsubscribe": ["nowhere", "split"]}`)
	await(t, "end of the subscriptions", func() error {
		c, err := s.client("delta-by-hand")
		if err == nil && (c.Types["eds"].Subscribed != 0 || !c.InSync) {
			err = fmt.Errorf("%+v", c)
		}
		return err
	})
	select {
	case m := <-h.out:
		t.Errorf("after unsubscribing: %v", m)
	default:
	}
	h.send(t, `{"resource_names_subscribe": ["split"]}`)
	if m := h.receive(t); !strings.Contains(fmt.Sprint(m["resources"]), "split") {
		t.Errorf("subscribed again, got %v", m)
	}
}

// answer acknowledges a response, or refuses it.
func answer(m map[string]any, refusal string) string {
	fields := map[string]any{"response_nonce": m["nonce"], "type_url": endpointsURL}
	if v := m["versionInfo"]; v != nil {
		fields["version_info"], fields["resource_names"] = v, []string{"split"}
	}
	if refusal != "" {
		fields["error_detail"] = map[string]any{"code": 3, "message": refusal}
	}
	out, err := json.Marshal(fields)
	if err != nil {
		return err.Error() // which the server refuses
	}
	return string(out)
}
