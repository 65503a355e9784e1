package plan

import (
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
)

// Input is everything that one plan is made from. Nothing in it is changed.
type Input struct {
	Now      time.Time
	Trigger  assign.Trigger
	Topology *isobar.Topology
	Health   health.Table

	// Load is what was measured; nil keeps what the previous plan was made
	// from, as a rebase does.
	Load *load.Snapshot
	// Findings compares observed shares with the previous plan, sorted by service;
	// read only with Load.
	Findings []load.Findings
	// News says that Load was measured since the last tick: time has passed, and
	// the planner can see oscillations from tick to tick. Scoring says that Load and
	// Findings were seen while Previous was in force besides, so that what it
	// predicted can be held against them.
	News, Scoring bool
	// Learned is what is known of capacities from reports of utilization, sorted
	// by service; read only with Load.
	Learned []LearnedService
	// Ages tells how old inputs are, sorted by service, then kind: what is not
	// listed is fresh, or not there. That of load reports stands in Load. Ages and
	// Ladder are read only with Load.
	Ages        []InputAge
	Degradation Degradation // complete
	// Paused says what operators froze.
	Paused Pauses
	// Subscribed lists who wants which service without necessarily sending to
	// it, sorted by service, then source.
	Subscribed []load.Subscription

	Previous *Plan // nil for the first plan ever
	// Version of the new plan; must be above Previous.Version.
	Version uint64

	// restoring says that Previous was revived: its assignments have to be made.
	restoring bool
}
