package plan_test

import (
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestDeviationsInWords: what operators read of sources and of single clients that do not
// follow their weights.
func TestDeviationsInWords(t *testing.T) {
	a, b, c := isobar.MustLocality("us-east/a"), isobar.MustLocality("us-east/b"), isobar.MustLocality("us-east/c")
	one := load.ClientDeviation{Node: "n1", Cluster: "web", Rate: 100, Points: 92}
	two := load.ClientDeviation{Node: "n2", Cluster: "web", Rate: 10, Points: 40}
	got := plan.DeviationsOf(&load.Findings{
		Deviating: []load.Deviation{{Source: b, Points: 30, Cause: load.CauseZoneAware, Clients: []load.ClientDeviation{one, two}, Others: 2}},
		Individual: []load.Deviation{
			{Source: a, Points: 92, Cause: load.CauseUnknown, Clients: []load.ClientDeviation{one}},
			{Source: c, Points: 92, Cause: load.CauseUnknown, Clients: []load.ClientDeviation{one, two}},
		},
	})
	want := []struct {
		source isobar.Locality
		only   bool
		text   string
	}{
		{a, true, `client "n1" (web) does not follow its weights: at least 92% of its requests go elsewhere than planned`},
		{b, false, `clients "n1" (web), "n2" (web) and 2 more do not follow their weights: at least 30% of the requests of their locality go elsewhere than planned; likely cause: zone-aware routing`},
		{c, true, `clients "n1" (web), "n2" (web) do not follow their weights: at least 92% of the requests of the first go elsewhere than planned`},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, w := range want {
		if got[i].Source != w.source || got[i].ClientsOnly != w.only || got[i].String() != w.text {
			t.Errorf("%s, clients only %t: %s\nwant %s, %t: %s", got[i].Source, got[i].ClientsOnly, got[i].String(), w.source, w.only, w.text)
		}
	}
}
