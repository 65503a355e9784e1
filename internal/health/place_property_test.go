package health_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

var zones = []isobar.Locality{zoneA, zoneB, zoneC, zoneF, isobar.MustLocality("us/g"), isobar.MustLocality("asia/x/1"), {}}

func someCheckers(t *rapid.T, least int) []health.Checker {
	n := rapid.IntRange(least, 14).Draw(t, "checkers")
	out := make([]health.Checker, n)
	for i := range out {
		out[i] = checker(fmt.Sprintf("c%02d", i), rapid.SampledFrom(zones).Draw(t, "zone"))
		if rapid.IntRange(0, 4).Draw(t, "envoy") == 0 {
			out[i].Protocols = health.ProtocolsOf(isobar.CheckHTTP, isobar.CheckTCP)
		}
	}
	return out
}

func someTopology(t *rapid.T) *isobar.Topology {
	var services []isobar.Service
	for i := range rapid.IntRange(1, 4).Draw(t, "services") {
		s := service(fmt.Sprintf("s%d", i), rapid.IntRange(1, 20).Draw(t, "endpoints"), zones[:rapid.IntRange(1, 4).Draw(t, "zones")]...)
		s.HealthChecks[0].Protocol = rapid.SampledFrom([]isobar.CheckProtocol{isobar.CheckTCP, isobar.CheckGRPC}).Draw(t, "protocol")
		s.Checkers = isobar.Checkers{Count: rapid.IntRange(0, 5).Draw(t, "count"), Domains: rapid.IntRange(0, 3).Draw(t, "domains")}
		services = append(services, s)
	}
	return topology(services...)
}

// pairs counts the designations per (checker, endpoint).
func pairs(p *health.Placement) map[string]map[health.Key]bool {
	out := map[string]map[health.Key]bool{}
	for _, d := range p.Designations {
		out[d.Checker] = map[health.Key]bool{}
		for _, k := range d.Endpoints {
			out[d.Checker][k] = true
		}
	}
	return out
}

// possible tells, looking at nothing but the fleet, how many checkers and
// zones an endpoint of the service can have.
func possible(spec *isobar.Service, checkers []health.Checker) (count, domains int) {
	seen := map[isobar.Locality]bool{}
	for _, c := range checkers {
		if c.Protocols.Has(health.ProtocolsOf(spec.HealthChecks[0].Protocol)) {
			count++
			seen[c.Locality.ZoneOnly()] = true
		}
	}
	return count, len(seen)
}

func orElse(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}

func TestPlacementGivesWhatIsPossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top, checkers := someTopology(t), someCheckers(t, 0)
		in := health.PlacementInput{Topology: top, Checkers: checkers}
		if rapid.Bool().Draw(t, "history") {
			in.Previous = health.Place(health.PlacementInput{Topology: someTopology(t), Checkers: someCheckers(t, 0)})
		}
		p := health.Place(in)
		at := map[string]isobar.Locality{}
		for _, c := range checkers {
			at[c.ID] = c.Locality.ZoneOnly()
		}
		for i := range top.Services {
			spec := &top.Services[i]
			count, domains := possible(spec, checkers)
			count = min(count, orElse(spec.Checkers.Count, 3))
			domains = min(domains, count, orElse(spec.Checkers.Domains, 2))
			for _, sl := range spec.Localities {
				for _, e := range sl.Endpoints {
					k := health.Key{Service: spec.Name, Address: e.Address}
					got := designated(&p, k)
					seen := map[isobar.Locality]bool{}
					for _, id := range got {
						seen[at[id]] = true
					}
					if len(got) != count || len(seen) < domains {
						t.Fatalf("%v: %v in %d zones, want %d checkers in %d", k, got, len(seen), count, domains)
					}
				}
			}
		}
		shuffled := slices.Clone(checkers)
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		in.Checkers = shuffled
		settledInput := in
		settledInput.Previous = health.Place(in)
		for range 3 { // a loss is followed by a rebalancing
			settledInput.Previous = health.Place(settledInput)
		}
		if again := health.Place(settledInput); !again.Equal(&settledInput.Previous) {
			t.Fatal("placing again moves something again and again")
		}
		if again := health.Place(in); !again.Equal(&p) {
			t.Fatal("the order of the checkers decides")
		}
	})
}

func TestALossMovesOnlyItsOwnShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top, checkers := someTopology(t), someCheckers(t, 1)
		before := health.Place(health.PlacementInput{Topology: top, Checkers: checkers})
		gone := rapid.IntRange(0, len(checkers)-1).Draw(t, "lost")
		rest := slices.Delete(slices.Clone(checkers), gone, gone+1)
		next := health.Place(health.PlacementInput{Topology: top, Checkers: rest, Previous: before})
		was, is := pairs(&before), pairs(&next)
		for _, c := range rest {
			for k := range was[c.ID] {
				if !is[c.ID][k] {
					t.Fatalf("%s lost %v though %s went", c.ID, k, checkers[gone].ID)
				}
			}
			for k := range is[c.ID] {
				if !was[c.ID][k] && !was[checkers[gone].ID][k] {
					t.Fatalf("%s got %v, which %s did not have", c.ID, k, checkers[gone].ID)
				}
			}
		}
	})
}

func TestANewCheckerTakesOnlyWhatIsAboveTheCap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := topology(service("web", rapid.IntRange(1, 60).Draw(t, "endpoints"), zoneA, zoneB))
		checkers := checkersIn(rapid.IntRange(1, 4).Draw(t, "checkers"), zoneA, zoneB, zoneC)
		before := health.Place(health.PlacementInput{Topology: top, Checkers: checkers})
		all := append(slices.Clone(checkers), checker("new", rapid.SampledFrom(zones).Draw(t, "zone")))
		next := health.Place(health.PlacementInput{Topology: top, Checkers: all, Previous: before})
		total := 0
		for _, d := range before.Designations {
			total += len(d.Endpoints)
		}
		limit := max(1.25*float64(total)/float64(len(all)), float64(total)/float64(len(all))+1)
		for _, d := range before.Designations {
			left := len(d.Endpoints) - len(next.Of(d.Checker))
			if left > 0 && float64(len(next.Of(d.Checker))+1) <= limit {
				t.Fatalf("%s gave %d of %d away, more than the cap %v asks for", d.Checker, left, len(d.Endpoints), limit)
			}
			for _, k := range next.Of(d.Checker) {
				if !slices.Contains(d.Endpoints, k) {
					t.Fatalf("%s got %v by the coming of another", d.Checker, k)
				}
			}
		}
		if again := health.Place(health.PlacementInput{Topology: top, Checkers: all, Previous: next}); !again.Equal(&next) {
			t.Fatal("placing again moves something")
		}
	})
}

func TestLoadIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := topology(service("web", rapid.IntRange(1, 40).Draw(t, "endpoints"), zoneA, zoneB))
		checkers := checkersIn(rapid.IntRange(2, 5).Draw(t, "checkers"), zoneA, zoneB, zoneC)
		limit := float64(rapid.IntRange(1, 40).Draw(t, "probes in 5 s")) / 5
		p := health.Place(health.PlacementInput{Topology: top, Checkers: checkers, Limits: health.Limits{CheckerRate: limit}})
		for _, d := range p.Designations {
			if float64(len(d.Endpoints))/5 > limit+1e-9 {
				t.Fatalf("%s: %d endpoints every 5 s, above %v probes/s", d.Checker, len(d.Endpoints), limit)
			}
		}
	})
}

func BenchmarkPlace(b *testing.B) {
	var services []isobar.Service
	var at []isobar.Locality
	for i := range 30 {
		at = append(at, isobar.Locality{Region: fmt.Sprintf("r%d", i/3), Zone: fmt.Sprintf("z%d", i%3)})
	}
	for i := range 200 {
		services = append(services, service(fmt.Sprintf("s%03d", i), 20, at[i%26:i%26+5]...))
	}
	top := topology(services...)
	var checkers []health.Checker
	for i := range 100 {
		checkers = append(checkers, checker(fmt.Sprintf("c%03d", i), at[i%30]))
	}
	first := health.Place(health.PlacementInput{Topology: top, Checkers: checkers})
	for name, in := range map[string]health.PlacementInput{
		"fresh": {Topology: top, Checkers: checkers},
		"same":  {Topology: top, Checkers: checkers, Previous: first},
		"lost":  {Topology: top, Checkers: checkers[1:], Previous: first},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				health.Place(in)
			}
		})
	}
}
