package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// post sends a message of a checker that polls.
func (w *world) post(id string, body any) []byte {
	w.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		w.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(w.ctx, http.MethodPost, "http://localhost"+rpc.CheckerPath, strings.NewReader(string(data)))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set(hds.CheckerHeader, id)
	return w.answered(req)
}

// answered gives the body of an answer that has to be 200.
func (w *world) answered(req *http.Request) []byte {
	w.t.Helper()
	resp, err := w.api.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out json.RawMessage
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != http.StatusOK {
		w.t.Fatalf("%s: %s %s %v", req.URL, resp.Status, out, err)
	}
	return out
}

// TestMetadataOfCheckersIsShown: what a checker adds to a status stands beside
// its vote where operators look.
func TestMetadataOfCheckersIsShown(t *testing.T) {
	inWorld(t, checked(t), func(w *world) {
		type object = map[string]any
		hello := object{"health_check_request": object{
			"node":       object{"id": "rest-1", "locality": object{"region": "us", "zone": "a"}},
			"capability": object{"health_check_protocols": []string{"HTTP"}},
		}}
		w.post("", hello)
		w.settle(interval)
		var work struct {
			Clusters []struct {
				Name       string `json:"cluster_name"`
				Localities []struct {
					Locality  object   `json:"locality"`
					Endpoints []object `json:"endpoints"`
				} `json:"locality_endpoints"`
			} `json:"cluster_health_checks"`
		}
		if err := json.Unmarshal(w.post("", hello), &work); err != nil {
			t.Fatal(err)
		}
		if len(work.Clusters) != 1 || len(work.Clusters[0].Localities) == 0 {
			t.Fatalf("it is to probe %+v", work)
		}
		at := work.Clusters[0].Localities[0]
		w.post("rest-1", object{"endpoint_health_response": object{"cluster_endpoints_health": []object{{
			"cluster_name": work.Clusters[0].Name,
			"locality_endpoints_health": []object{{"locality": at.Locality, "endpoints_health": []object{{
				"endpoint": at.Endpoints[0], "health_status": "HEALTHY", "health_metadata": object{"rtt_ms": 1.5},
			}}}},
		}}}})
		w.settle(time.Second)
		req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, "http://localhost/v1/verdicts?service=checkout", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if out := string(w.answered(req)); strings.Count(out, `"metadata":"{\"rtt_ms\":1.5}"`) != 1 {
			t.Errorf("verdicts are %s", out)
		}
	})
}
