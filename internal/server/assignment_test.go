package server_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// canary is a service with all that can be said of an assignment; settings go
// into it.
func canary(settings string) string {
	return `{"assignment": {` + settings + `}, "localities": [{"locality": "us/a", "metadata": {"envoy.lb": {"tier": 1}}, "endpoints": [
		{"address": "10.9.0.1:80", "weight": 3, "hostname": "one.example", "additional_addresses": ["[2001:db8::1]:80"],
		 "metadata": {"envoy.lb": {"version": "canary"}}, "health_check_config": {"port": 81}},
		"10.9.0.2:80"]}]}`
}

// canarySent is what clients get of it, with the given policy.
func canarySent(t *testing.T, policy string) *endpointv3.ClusterLoadAssignment {
	t.Helper()
	m := &endpointv3.ClusterLoadAssignment{}
	if err := protojson.Unmarshal([]byte(`{"clusterName": "pay", "policy": `+policy+`, "endpoints": [{
		"locality": {"region": "us", "zone": "a"}, "loadBalancingWeight": 10000, "metadata": {"filterMetadata": {"envoy.lb": {"tier": 1}}},
		"lbEndpoints": [
			{"loadBalancingWeight": 3, "metadata": {"filterMetadata": {"envoy.lb": {"version": "canary"}}}, "endpoint": {
				"address": {"socketAddress": {"address": "10.9.0.1", "portValue": 80}}, "hostname": "one.example",
				"additionalAddresses": [{"address": {"socketAddress": {"address": "2001:db8::1", "portValue": 80}}}],
				"healthCheckConfig": {"portValue": 81}}},
			{"loadBalancingWeight": 1, "endpoint": {"address": {"socketAddress": {"address": "10.9.0.2", "portValue": 80}}}}]}]}`), m); err != nil {
		t.Fatal(err)
	}
	if policy == "null" {
		m.Policy = nil
	}
	return m
}

func wantSent(t *testing.T, a *fleet.Agent, policy string) {
	t.Helper()
	synctest.Wait()
	if got, want := a.Assignment("pay"), canarySent(t, policy); !proto.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", protojson.Format(got), protojson.Format(want))
	}
}

// TestWholeAssignmentReachesClients: what the API is told of a service reaches
// clients at once, what did not change is not sent again, the API shows it as
// it was written, and a restart keeps it.
func TestWholeAssignmentReachesClients(t *testing.T) {
	cfg := configuration(t)
	cfg.Admin.Writable = true
	agent := func(w *world) *fleet.Agent {
		a, err := fleet.NewAgent(fleet.AgentOptions{Conn: w.conn, ID: "one", Locality: loc("us/a"), Services: []string{"pay"}})
		if err != nil {
			t.Fatal(err)
		}
		go a.Run(w.ctx)
		synctest.Wait()
		return a
	}
	last := canary(`"endpoint_stale_after": "30s", "overprovisioning_factor": 200`)
	const lastPolicy = `{"endpointStaleAfter": "30s", "overprovisioningFactor": 200}`
	bubble.Test(t, func(t *testing.T) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		runWorld(t, cfg, kept, func(w *world) {
			put := func(body string) {
				t.Helper()
				if status, answer := w.put("/v1/services/pay", body); status != http.StatusOK {
					t.Fatalf("answered %d %v", status, answer)
				}
				synctest.Wait()
			}
			put(canary(``))
			a := agent(w)
			wantSent(t, a, `null`)
			for _, step := range []struct{ settings, policy string }{
				{`"weighted_priority_health": true`, `{"weightedPriorityHealth": true}`},
				{`"endpoint_stale_after": "1m"`, `{"endpointStaleAfter": "60s"}`},
				{`"resource_ttl": "1m"`, `null`},
				{`"overprovisioning_factor": 100`, `{"overprovisioningFactor": 100}`},
				{`"endpoint_stale_after": "30s", "overprovisioning_factor": 200`, lastPolicy},
			} {
				put(canary(step.settings))
				wantSent(t, a, step.policy)
				before := a.Assignment("pay")
				put(canary(step.settings))
				if a.Assignment("pay") != before {
					t.Errorf("%s: sent again", step.settings)
				}
			}
			var object struct{ Service json.RawMessage }
			if status := w.read("127.0.0.1", "/v1/services/pay", &object); status != http.StatusOK {
				t.Errorf("answered %d", status)
			}
			before := a.Assignment("pay")
			put(string(object.Service)) // it can be written as it was read
			if a.Assignment("pay") != before {
				t.Errorf("%s differs from %s", object.Service, last)
			}
			time.Sleep(15 * time.Second) //nolint:forbidigo // virtual time
			if synctest.Wait(); a.Assignment("pay") == before {
				t.Error("half of endpoint_stale_after has passed, and nothing was sent again")
			}
			wantSent(t, a, lastPolicy)
		})
		runWorld(t, cfg, kept, func(w *world) {
			wantSent(t, agent(w), lastPolicy)
		})
	})
}
