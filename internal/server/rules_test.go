package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/isobar-xds/isobar/internal/fleet"
)

// TestRulesReachClients: a service that its region must not leave, as real
// streams carry it. Clients elsewhere are told that there is nothing for them,
// and are served as soon as the rule is gone.
func TestRulesReachClients(t *testing.T) {
	cfg := configuration(t)
	cfg.Admin.Writable = true
	inWorld(t, cfg, func(w *world) {
		put := func(path, body string) {
			t.Helper()
			if status, answer := w.put(path, body); status != http.StatusOK {
				t.Fatalf("answered %d %v", status, answer)
			}
			synctest.Wait()
		}
		service := func(rules string) {
			t.Helper()
			put("/v1/services/pay", `{`+rules+`, "localities": [
				{"locality": "us/a", "endpoints": ["10.9.0.1:80"]}, {"locality": "eu/a", "endpoints": ["10.9.1.1:80"]}]}`)
		}
		service(`"isolation": "strict"`)
		agents := map[string]*fleet.Agent{}
		for _, from := range []string{"us/a", "eu/b", "ap/a"} {
			a, err := fleet.NewAgent(fleet.AgentOptions{Conn: w.conn, ID: from, Locality: loc(from), Services: []string{"pay"}})
			if err != nil {
				t.Fatal(err)
			}
			go a.Run(w.ctx)
			agents[from] = a
		}
		synctest.Wait()
		want := func(from string, tiers ...string) {
			t.Helper()
			m := agents[from].Assignment("pay")
			if m == nil {
				t.Fatalf("%s got no answer", from)
			}
			var got []string
			for _, l := range m.GetEndpoints() {
				for _, e := range l.GetLbEndpoints() {
					got = append(got, fmt.Sprintf("%d %s/%s %s", l.GetPriority(), l.GetLocality().GetRegion(), l.GetLocality().GetZone(), e.GetHealthStatus()))
				}
			}
			if !slices.Equal(got, tiers) {
				t.Errorf("%s got %q, want %q", from, got, tiers)
			}
		}
		want("us/a", "0 us/a UNKNOWN")
		want("eu/b", "0 eu/a UNKNOWN")
		want("ap/a")

		put("/v1/services/pay/endpoints/10.9.0.1:80/health", "unhealthy")
		want("us/a", "0 us/a UNKNOWN") // it fails open, rather than leave the region
		want("eu/b", "0 eu/a UNKNOWN")

		service(`"policy": "nearest"`)
		want("us/a", "0 eu/a UNKNOWN", "1 us/a UNHEALTHY")
		want("ap/a", "0 eu/a UNKNOWN", "1 us/a UNHEALTHY")
		service(`"residency": [{"from": "*", "allow": ["eu"]}]`)
		want("us/a", "0 eu/a UNKNOWN")
		want("ap/a", "0 eu/a UNKNOWN")
	})
}
