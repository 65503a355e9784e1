package control

import (
	"slices"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// Names of no service, of which clients may ask for millions, are no work for the planner;
// in a preview they may be those of a service to come.
func TestPlannerHearsOfServicesOnly(t *testing.T) {
	topology := &isobar.Topology{Services: []isobar.Service{{Name: "cart"}, {Name: "shop"}}}
	asked := []load.Subscription{{Service: "a-1", Streams: 1}, {Service: "cart", Streams: 2}, {Service: "chekout", Streams: 3}, {Service: "shop", Streams: 4}}
	if got := subscribed(slices.Clone(asked), nil); len(got) != len(asked) {
		t.Errorf("a preview hears of %+v, want all", got)
	}
	got := subscribed(asked, topology)
	if len(got) != 2 || got[0].Service != "cart" || got[1].Service != "shop" || got[1].Streams != 4 {
		t.Errorf("got %+v, want cart and shop", got)
	}
}
