package interop

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
)

var record = flag.Bool("record", false, "write what Envoys send into the corpora of the fuzz targets")

// TestEnvoyMessages runs Envoys that take part in everything: discovery, load
// reports and health checks. Isobar accepts all that they say. With -record, with
// both versions, what they said becomes input of the fuzz targets.
func TestEnvoyMessages(t *testing.T) {
	t.Parallel()
	web := startWebBackend(t, "web")
	s := startIsobar(t, fmt.Sprintf(`
services:
- name: checkout
  health_checks: [{http: {path: /healthz}, interval: 1s, timeout: 500ms, unhealthy_threshold: 1, healthy_threshold: 1}]
  localities: [{locality: us/a, endpoints: [%q]}]
- name: payment
  localities: [{locality: us/b, endpoints: [%q]}]
`, web.address, web.address))
	versions := envoyVersions()
	if *record {
		versions = []string{envoy.Newest, envoy.Oldest}
	}
	for _, version := range versions {
		for _, protocol := range []string{adsStream, adsDelta} {
			t.Run(version+" "+protocol, func(t *testing.T) {
				t.Parallel()
				s.on(t).messages(version, protocol)
			})
		}
	}
}

func (s *isobar) messages(version, protocol string) {
	t := s.t
	r := startTap(t, s.xds)
	g := &gateway{version: version, protocol: protocol, zone: "us/a", id: "envoy-" + version + "-" + strings.ReplaceAll(protocol, " ", "-")}
	printed := envoyBootstrap(t, "--server", r.address, "--node-id", g.id, "--cluster", "shop", "--locality", g.zone, "--checks")
	if protocol == adsDelta {
		printed = strings.Replace(printed, "  ads_config:\n    api_type: GRPC\n", "  ads_config:\n    api_type: DELTA_GRPC\n", 1)
	}
	g.bootstrap = withListeners(t, printed, routesTo([]string{"checkout", "payment"}), "")
	g.start(t)
	discovery := map[string]string{adsStream: "StreamAggregatedResources", adsDelta: "DeltaAggregatedResources"}[protocol]
	await(t, "messages of all services", func() error {
		o := g.requests(t.Context(), "checkout", 8)
		if len(o.Failed) > 0 {
			return fmt.Errorf("%v", o.Failed)
		}
		for method, want := range map[string]int{discovery: 4, "StreamLoadStats": 4, "StreamHealthCheck": 3} {
			if n := len(r.messages(method)); n < want {
				return fmt.Errorf("%d messages of %s, want %d", n, method, want)
			}
		}
		return nil
	})
	await(t, "acceptance of all that it says", func() error { return s.accepts(g) })
	if !*record {
		return
	}
	name := "envoy_" + strings.ReplaceAll(version, ".", "_")
	if protocol == adsDelta {
		writeInput(t, "xds", "FuzzDeltaRequests", name, stream(r.messages(discovery)))
		return
	}
	writeInput(t, "xds", "FuzzRequests", name, stream(r.messages(discovery)))
	for i, m := range r.messages(discovery)[:4] {
		writeInput(t, "wire", "FuzzAck", fmt.Sprintf("%s_%d", name, i), fewExtensions(m))
	}
	for i, m := range r.messages("StreamLoadStats")[:4] {
		writeInput(t, "wire", "FuzzLoadReport", fmt.Sprintf("%s_%d", name, i), fewExtensions(m), 1)
	}
	writeInput(t, "wire", "FuzzLoadReport", name+"_whole_node", r.messages("StreamLoadStats")[1], 1)
	for i, m := range r.messages("StreamHealthCheck")[:3] {
		writeInput(t, "wire", "FuzzHealthReport", fmt.Sprintf("%s_%d", name, i), fewExtensions(m))
	}
}

// accepts reports whether the server has taken all that an Envoy said: it is in
// sync, nothing of its load reports was left out, and its probes count.
func (s *isobar) accepts(g *gateway) error {
	c, err := s.client(g.id)
	if err != nil {
		return err
	}
	if !c.InSync || c.LRS == nil || c.LRS.LastReport.IsZero() || c.LRS.Rejected > 0 {
		return fmt.Errorf("%+v, load reports %+v", c, c.LRS)
	}
	var health json.RawMessage
	if err := s.get("/v1/verdicts", &health); err != nil {
		return err
	}
	if !strings.Contains(string(health), g.id) {
		return fmt.Errorf("no checker %s in %.1000s", g.id, health)
	}
	return nil
}

// stream frames the first messages of a stream as the fuzz targets of streams
// expect it.
func stream(messages [][]byte) []byte {
	var out []byte
	for _, m := range messages[:4] {
		out = protowire.AppendBytes(out, fewExtensions(m))
	}
	return out
}

// keptExtensions is how many extensions of a node are kept, of some 500.
const keptExtensions = 3

// fewExtensions leaves most extensions out of the node of a message, or of the
// message in its first field. All other bytes stay as they are.
func fewExtensions(message []byte) []byte {
	var out []byte
	for rest := message; len(rest) > 0; {
		number, kind, size := protowire.ConsumeField(rest)
		if size < 0 {
			return message
		}
		_, _, head := protowire.ConsumeTag(rest)
		if (number == 1 || number == 2) && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(rest[head:])
			inner := lessExtensions(value)
			if number == 1 && len(inner) == len(value) {
				inner = fewExtensions(value)
			}
			out = protowire.AppendBytes(protowire.AppendTag(out, number, kind), inner)
		} else {
			out = append(out, rest[:size]...)
		}
		rest = rest[size:]
	}
	return out
}

// lessExtensions copies a node without most of its extensions.
func lessExtensions(node []byte) []byte {
	const extensions = 9
	var out []byte
	seen := 0
	for rest := node; len(rest) > 0; {
		number, _, size := protowire.ConsumeField(rest)
		if size < 0 {
			return node
		}
		if number == extensions {
			seen++
		}
		if number != extensions || seen <= keptExtensions {
			out = append(out, rest[:size]...)
		}
		rest = rest[size:]
	}
	return out
}

// writeInput writes an input of a fuzz target.
func writeInput(t *testing.T, pkg, target, name string, data []byte, more ...byte) {
	t.Helper()
	text := fmt.Sprintf("go test fuzz v1\n[]byte(%q)\n", data)
	for _, b := range more {
		text += fmt.Sprintf("byte(%q)\n", b)
	}
	if err := os.WriteFile(filepath.Join("../../internal", pkg, "testdata/fuzz", target, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
