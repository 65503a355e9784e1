package dataplane_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
)

type tables struct {
	PriorityLoad []struct {
		Source       string `json:"source"`
		Hosts        []int  `json:"hosts"`
		Healthy      []int  `json:"healthy"`
		Degraded     []int  `json:"degraded"`
		Load         []int  `json:"load"`
		DegradedLoad []int  `json:"degraded_load"`
	} `json:"priority_load"`
	LocalityShare []struct {
		Localities []struct {
			Name           string `json:"name"`
			Weight         uint32 `json:"weight"`
			HealthyPercent int    `json:"healthy_percent"`
		} `json:"localities"`
		Share     map[string]float64 `json:"share"`
		Tolerance float64            `json:"tolerance"`
	} `json:"locality_share"`
	DropOverloads []struct {
		Categories []struct {
			Category string  `json:"category"`
			Percent  float64 `json:"percent"`
		} `json:"categories"`
		PassPercent float64 `json:"pass_percent"`
	} `json:"drop_overloads"`
}

func readTables(t *testing.T) tables {
	t.Helper()
	b, err := os.ReadFile("testdata/data_plane_tables.json")
	if err != nil {
		t.Fatal(err)
	}
	var out tables
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	if len(out.PriorityLoad) == 0 || len(out.LocalityShare) == 0 || len(out.DropOverloads) == 0 {
		t.Fatal("a table is empty")
	}
	return out
}

// hosts makes n endpoints, the first healthy ones healthy, the next degraded.
func hosts(prefix string, n, healthy, degraded int) []dataplane.Endpoint {
	es := make([]dataplane.Endpoint, n)
	for i := range es {
		es[i] = dataplane.Endpoint{Address: fmt.Sprintf("%s-%d", prefix, i), Weight: 1, Health: isobar.Unhealthy}
		switch {
		case i < healthy:
			es[i].Health = isobar.Healthy
		case i < healthy+degraded:
			es[i].Health = isobar.Degraded
		}
	}
	return es
}

func zone(name string) isobar.Locality { return isobar.Locality{Region: "r", Zone: name} }

func TestPublishedPriorityLoads(t *testing.T) {
	for i, row := range readTables(t).PriorityLoad {
		var c dataplane.Cluster
		for p, n := range row.Hosts {
			d := 0
			if row.Degraded != nil {
				d = row.Degraded[p]
			}
			c.Priorities = append(c.Priorities, dataplane.Priority{Localities: []dataplane.Locality{{
				Locality: zone("a"), Weight: 1, Endpoints: hosts(fmt.Sprint("h", p), n, row.Healthy[p], d),
			}}})
		}
		got := dataplane.Predict(c, dataplane.Envoy, dataplane.DefaultOptions())
		for p, want := range row.Load {
			if got.Priorities[p].Load != want {
				t.Errorf("row %d, priority %d: load %d, want %d", i, p, got.Priorities[p].Load, want)
			}
			if row.DegradedLoad != nil && got.Priorities[p].DegradedLoad != row.DegradedLoad[p] {
				t.Errorf("row %d, priority %d: degraded load %d, want %d", i, p, got.Priorities[p].DegradedLoad, row.DegradedLoad[p])
			}
		}
	}
}

func TestPublishedLocalityShares(t *testing.T) {
	for i, row := range readTables(t).LocalityShare {
		var p dataplane.Priority
		for _, l := range row.Localities {
			p.Localities = append(p.Localities, dataplane.Locality{
				Locality: zone(l.Name), Weight: l.Weight, Endpoints: hosts(l.Name, 100, l.HealthyPercent, 0),
			})
		}
		// A second priority would take what the first lacks; the published
		// rows speak of one priority that keeps all its load.
		got := dataplane.Predict(dataplane.Cluster{Priorities: []dataplane.Priority{p}}, dataplane.Envoy, dataplane.DefaultOptions())
		for _, l := range got.Priorities[0].Localities {
			want := row.Share[l.Locality.Zone]
			if math.Abs(100*l.Share-want) > row.Tolerance {
				t.Errorf("row %d, locality %s: share %.2f%%, want %v%%", i, l.Locality.Zone, 100*l.Share, want)
			}
		}
	}
}

func TestPublishedDrops(t *testing.T) {
	for i, row := range readTables(t).DropOverloads {
		var c dataplane.Cluster
		for _, d := range row.Categories {
			c.Drops = append(c.Drops, d.Percent/100)
		}
		for _, kind := range []dataplane.Kind{dataplane.Envoy, dataplane.GRPC} {
			got := dataplane.Predict(c, kind, dataplane.DefaultOptions()).PassPercent
			if math.Abs(got-row.PassPercent) > 1e-9 {
				t.Errorf("row %d, %s: %v%% pass, want %v%%", i, kind, got, row.PassPercent)
			}
		}
	}
}
