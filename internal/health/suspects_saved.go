package health

import (
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
)

// SavedSuspect is a service that is suspected of ending its checkers, as it
// survives a restart. A trial that goes on does not: its checker may have ended
// meanwhile.
type SavedSuspect struct {
	Service  string               `json:"service"`
	Checks   []isobar.HealthCheck `json:"checks"` // as they were when it was suspected
	Ends     int                  `json:"ends"`
	Last     time.Time            `json:"last"`
	Checkers []string             `json:"checkers"`          // that ended, sorted
	Probing  []string             `json:"probing,omitempty"` // checkers that probe it without exiting, sorted
	Tried    string               `json:"tried,omitempty"`   // the last checker that was
}

// save extracts the state that survives a restart.
func (s *suspects) save() []SavedSuspect {
	var out []SavedSuspect
	for _, x := range s.list {
		out = append(out, SavedSuspect{
			Service: x.service, Checks: x.checks, Ends: x.Ends, Last: x.Last,
			Checkers: slices.Clone(x.Checkers), Probing: slices.Clone(x.Probing), Tried: x.tried,
		})
	}
	return out
}

// restoreSuspects restores the state that an earlier process saved. Invalid entries are left out:
// at worst a service is suspected again.
func restoreSuspects(saved []SavedSuspect) suspects {
	var out suspects
	for i := range saved {
		x := &saved[i]
		k, known := out.find(x.Service)
		if known || x.Service == "" || x.Ends < 1 || x.Last.IsZero() {
			continue
		}
		out.list = slices.Insert(out.list, k, &suspect{
			service: x.Service, checks: x.Checks, tried: x.Tried, next: x.Last.Add(restAfter(x.Ends)),
			Suspicion: Suspicion{Ends: x.Ends, Last: x.Last, Checkers: sortedNames(x.Checkers), Probing: sortedNames(x.Probing)},
		})
	}
	return out
}

// restAfter is how long a suspected service rests after so many ends.
func restAfter(ends int) time.Duration {
	return min(suspectMost, suspectRest<<max(0, min(ends-suspectAfter, 8)))
}

func sortedNames(names []string) []string {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" })
	slices.SortFunc(names, strings.Compare)
	return slices.Compact(names)
}
