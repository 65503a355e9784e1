package envoyloop

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
)

// Zones of the loop: two in one region and one in another. Clients are in the
// same zones as backends.
var Zones = []isobar.Locality{
	{Region: "us-east", Zone: "b"},
	{Region: "us-east", Zone: "c"},
	{Region: "eu-west", Zone: "a"},
}

// What the backends of each zone can do, in total.
const (
	backendsPerZone = 4
	concurrency     = 2 // of each backend
	serviceTime     = 100 * time.Millisecond
	capacity        = backendsPerZone * concurrency / 0.1 // requests/s of a zone
	ceiling         = 0.8                                 // default of the configuration
	normal          = 0.5                                 // of its own capacity that each source sends when all is well
	routeTimeout    = time.Second                         // of Envoy's route; the service declares it
	farLatency      = 30 * time.Millisecond               // between the regions, there and back
	service         = "shop"
)

// Scenario is a time in which all is well, then a fault, then all is well again.
type Scenario struct {
	Name    string
	About   string
	Fault   Fault      // of the backends in the first zone
	Only    int        // so many backends of the first zone have the fault; 0 = all
	Load    [3]float64 // what each source sends during the fault, in capacities of its zone; 0 = as before
	Mode    string     // of the service; "" = full
	MaxShed float64    // what the service may drop at its clients
	Shed    int        // requests inside of a backend beyond which it answers 503 at once; 0 = they wait
}

// Scenarios lists what `make envoy-loop` runs.
var Scenarios = []Scenario{
	{Name: "zone-1.5", About: "one zone gets 1.5 times its capacity", Load: [3]float64{1.5}},
	{Name: "refuse", About: "one zone refuses connections", Fault: Refuse},
	{Name: "hang", About: "one zone accepts requests and never answers", Fault: Hang},
	{Name: "fail", About: "one zone answers 500 to 90% of requests", Fault: Fail},
	{Name: "one-hangs", About: "one of the four endpoints of a zone never answers", Fault: Hang, Only: 1},
	{Name: "all-1.25", About: "all zones get 1.25 times their capacity, nothing may be dropped", Load: [3]float64{1.25, 1.25, 1.25}},
	{Name: "all-1.25-drops", About: "all zones get 1.25 times their capacity, clients may drop", Load: [3]float64{1.25, 1.25, 1.25}, MaxShed: 0.9},
	{Name: "all-3", About: "all zones get 3 times their capacity, nothing may be dropped", Load: [3]float64{3, 3, 3}},
	{Name: "all-3-drops", About: "all zones get 3 times their capacity, clients may drop", Load: [3]float64{3, 3, 3}, MaxShed: 0.9},
	{Name: "shedding-1.5", About: "one zone gets 1.5 times its capacity, full backends answer 503", Load: [3]float64{1.5}, Shed: 2 * concurrency},
	{
		Name: "shedding-all-1.25", About: "all zones get 1.25 times their capacity, full backends answer 503",
		Load: [3]float64{1.25, 1.25, 1.25}, Shed: 2 * concurrency,
	},
	{Name: "observe-1.5", About: "one zone gets 1.5 times its capacity, mode observe", Load: [3]float64{1.5}, Mode: modeObserve},
}

// modeObserve is the mode in which Isobar serves the nearest healthy localities
// whatever the load reports say.
const modeObserve = "observe"

// load of a source while the fault lasts, requests/s.
func (s *Scenario) load(source int) float64 {
	if s.Load[source] > 0 {
		return s.Load[source] * capacity
	}
	return normal * capacity
}

// dead reports whether the first zone is of no use while the fault lasts.
func (s *Scenario) dead() bool { return s.Fault != Well && s.Only == 0 }

// needed is the fraction of all requests that has to be dropped while the fault
// lasts, so that what remains fits below the ceilings.
func (s *Scenario) needed() float64 {
	if s.MaxShed == 0 {
		return 0
	}
	demand, usable := 0.0, 0.0
	for i := range Zones {
		demand += s.load(i)
		if i > 0 || !s.dead() {
			usable += capacity * ceiling
		}
	}
	return min(max(0, 1-usable/demand), s.MaxShed)
}

// latency is the network's, there and back.
func latency(from, to int) time.Duration {
	if Zones[from].Region != Zones[to].Region {
		return farLatency
	}
	return 0
}

// priorities lists the zones for a source: its own, the others of its region, the rest.
func priorities(source int) (tiers [][]int) {
	tiers = make([][]int, 3)
	for z := range Zones {
		tier := 2
		switch {
		case z == source:
			tier = 0
		case Zones[z].Region == Zones[source].Region:
			tier = 1
		}
		tiers[tier] = append(tiers[tier], z)
	}
	if len(tiers[1]) == 0 {
		tiers = [][]int{tiers[0], tiers[2]}
	}
	return tiers
}

// services is the configuration of the scenario's service. settings are further
// lines of it, such as "outlier_detection: none"; empty = none.
func (s *Scenario) services(addresses [][]string, settings string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "network:\n  latency_ms:\n    - {from: us-east, to: eu-west, ms: %d}\n"+
		"services:\n  - name: %s\n    mode: %s\n    max_shed: %g\n    request_timeout: %s\n",
		farLatency.Milliseconds(), service, cmp.Or(s.Mode, "full"), s.MaxShed, routeTimeout)
	for line := range strings.Lines(settings) {
		b.WriteString("    " + strings.TrimRight(line, "\n") + "\n")
	}
	b.WriteString("    localities:\n")
	for z, list := range addresses {
		fmt.Fprintf(&b, "      - {locality: %s, max_rate: %g, concurrency: %d, endpoints: [%q]}\n",
			Zones[z], float64(capacity), backendsPerZone*concurrency, strings.Join(list, `", "`))
	}
	return strings.ReplaceAll(b.String(), `\"`, `"`)
}
