package sim

import (
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Loss takes an input of decisions away for a while: load reports of clients,
// what checkers know of health, or what another control plane lists; or else
// what is decided, before it reaches clients.
type Loss struct {
	Input plan.InputKind // or Pushes
	// Scope are the clients that can't report, or that nothing reaches: a locality,
	// or a region or zone with all in it; zero = all. Health and topology are lost
	// as a whole.
	Scope isobar.Locality
	// From and To are since the start. Clients count on and report the whole time
	// at once when they can. Of the assignments that did not reach them, they get
	// the newest.
	From, To time.Duration
}

// Pushes is what a Loss removes that is no input: assignments on their way to
// clients, which go on with what they have.
const Pushes plan.InputKind = "pushes"

// lost gives the loss of an input that is going on; nil when there is none.
func (sc *Scenario) lost(kind plan.InputKind, at isobar.Locality, now time.Duration) *Loss {
	for i := range sc.Losses {
		x := &sc.Losses[i]
		if x.Input == kind && now >= x.From && now < x.To && (!x.someOnly() || within(at, x.Scope)) {
			return x
		}
	}
	return nil
}

// someOnly tells whether it may be of some clients only.
func (x *Loss) someOnly() bool { return x.Input == plan.InputReports || x.Input == Pushes }

// ages tells the planner how old its inputs are.
func (sc *Scenario) ages(services []*service, now time.Duration) []plan.InputAge {
	var out []plan.InputAge
	for _, kind := range []plan.InputKind{plan.InputHealth, plan.InputTopology} {
		x := sc.lost(kind, isobar.Locality{}, now)
		if x == nil {
			continue
		}
		for _, s := range services {
			out = append(out, plan.InputAge{Service: s.spec.Name, Kind: kind, Age: load.Age{Some: now - x.From, Most: now - x.From}})
		}
	}
	return out
}
