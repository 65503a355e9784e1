package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/isobar-xds/isobar/dataplane"
)

// object is a part of a JSON document.
type object = map[string]any

// planes is what isobar predict prints.
func planes(t *testing.T, assignment object) dataplane.Predictions {
	t.Helper()
	data, err := json.Marshal(assignment)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "assignment.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), []string{"predict", file}, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	var out dataplane.Predictions
	d := json.NewDecoder(&stdout)
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// localityOfHosts is a locality with hosts of which some are healthy and some
// degraded.
func localityOfHosts(zone string, priority int, weight uint32, hosts, healthy, degraded int) object {
	var endpoints []object
	for i := range hosts {
		state := "UNHEALTHY"
		switch {
		case i < healthy:
			state = "HEALTHY"
		case i < healthy+degraded:
			state = "DEGRADED"
		}
		// No address twice: Envoy would take only the first.
		address := object{"address": fmt.Sprintf("10.%d.%d.%d", priority, zone[len(zone)-1], i), "port_value": 80}
		endpoints = append(endpoints, object{"health_status": state, "endpoint": object{"address": object{"socket_address": address}}})
	}
	return object{"locality": object{"zone": zone}, "priority": priority, "load_balancing_weight": weight, "lb_endpoints": endpoints}
}

// TestPredictPublishedTables holds the command against what Envoy's
// documentation publishes.
func TestPredictPublishedTables(t *testing.T) {
	data, err := os.ReadFile("../../dataplane/testdata/data_plane_tables.json")
	if err != nil {
		t.Fatal(err)
	}
	var tables struct {
		PriorityLoad []struct {
			Hosts, Healthy, Degraded, Load []int

			DegradedLoad []int `json:"degraded_load"`
		} `json:"priority_load"`
		LocalityShare []struct {
			Localities []struct {
				Name           string
				Weight         uint32
				HealthyPercent int `json:"healthy_percent"`
			}
			Share     map[string]float64
			Tolerance float64
		} `json:"locality_share"`
		DropOverloads []struct {
			Categories []struct {
				Category string
				Percent  float64
			}
			PassPercent float64 `json:"pass_percent"`
		} `json:"drop_overloads"`
	}
	if err := json.Unmarshal(data, &tables); err != nil {
		t.Fatal(err)
	}
	for _, row := range tables.PriorityLoad {
		var localities []object
		for p := range row.Hosts {
			degraded := 0
			if row.Degraded != nil {
				degraded = row.Degraded[p]
			}
			localities = append(localities, localityOfHosts("a", p, 1, row.Hosts[p], row.Healthy[p], degraded))
		}
		got := planes(t, object{"cluster_name": "x", "endpoints": localities}).Envoy
		for p := range row.Hosts {
			if got.Priorities[p].Load != row.Load[p] || (row.DegradedLoad != nil && got.Priorities[p].DegradedLoad != row.DegradedLoad[p]) {
				t.Errorf("%+v: priority %d is %+v", row, p, got.Priorities[p])
			}
		}
	}
	for _, row := range tables.LocalityShare {
		var localities []object
		for _, l := range row.Localities {
			localities = append(localities, localityOfHosts(l.Name, 0, l.Weight, 100, l.HealthyPercent, 0))
		}
		for _, l := range planes(t, object{"cluster_name": "x", "endpoints": localities}).Envoy.Priorities[0].Localities {
			if want := row.Share[l.Locality.Zone]; math.Abs(100*l.Share-want) > row.Tolerance {
				t.Errorf("%+v: %s gets %v", row, l.Locality.Zone, l.Share)
			}
		}
	}
	for _, row := range tables.DropOverloads {
		var drops []object
		for _, c := range row.Categories {
			drops = append(drops, object{"category": c.Category, "drop_percentage": object{"numerator": c.Percent}})
		}
		got := planes(t, object{"cluster_name": "x", "policy": object{"drop_overloads": drops}})
		if got.Envoy.PassPercent != row.PassPercent || got.GRPC.PassPercent != row.PassPercent {
			t.Errorf("%+v: %v and %v pass", row, got.Envoy.PassPercent, got.GRPC.PassPercent)
		}
	}
	if len(tables.PriorityLoad)+len(tables.LocalityShare)+len(tables.DropOverloads) < 25 {
		t.Error("the tables are gone")
	}
}
