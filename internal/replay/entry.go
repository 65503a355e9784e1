// Package replay takes down everything that pure code was given, as a file, and
// has pure code decide it again: a [Recorder] stands at the border of the loop,
// a [Player] behind a [Reader]. As nothing that is decided depends on anything
// else, the plans come out the same, byte for byte.
//
// A file is one or more segments: a mark and a version, then chunks of at most
// 1 MiB that are compressed and have a checksum each. The chunks hold records;
// the first of a segment tells who wrote it, the second is the state in which
// pure code was found, and then everything follows in the order in which it
// happened, with a digest of each plan.
package replay

import (
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/replay/deep"
)

// The kinds of records. They are written to files: their numbers stay.
const (
	kindAbout     = 1 // JSON of About
	kindStart     = 2 // Start
	kindTopology  = 3 // the topology from now on, told by what differs from the one before
	kindOperators = 4 // what operators set of health from now on
	kindObserve   = 5 // observed: an event for the monitor
	kindRelease   = 6 // released: a mass flip is believed
	kindTurn      = 7 // turned: something to decide
	kindPlan      = 8 // Decided: what was decided
	kindEnd       = 9 // JSON of End
)

// About is who wrote a segment.
type About struct {
	Isobar   string    `json:"isobar"` // version of the program
	Arch     string    `json:"arch"`   // of the machine: the last digits of floats depend on it
	Types    string    `json:"types"`  // fingerprint of what is written
	Started  time.Time `json:"started"`
	Services int       `json:"services"`
}

// End is why a segment ends.
type End struct {
	Reason string `json:"reason"`
}

// The reasons of an End that are not failures of the recorder.
const (
	EndFinished = "finished"           // who asked for it has enough
	EndStopped  = "the server stopped" // or restarts
)

// Start is the state in which pure code was found.
type Start struct {
	Now       time.Time
	Decider   *plan.Decider
	Monitor   *health.Monitor
	Current   *plan.Plan // in force
	Topology  *isobar.Topology
	Operators health.Table
}

// observed is an event for the monitor, with the intervals that hold; topology
// and operators are told before.
type observed struct {
	Report, Tick time.Duration
	Event        health.Event
}

// operators is what operators set of health.
type operators struct{ Table health.Table }

type released struct {
	Service    string
	Localities []isobar.Locality
}

// The ways to decide.
const (
	HowTick     = "tick"
	HowReapply  = "reapply"
	HowRollback = "rollback"
)

// turned is a turn; topology, health and the plan before are told by what comes
// before.
type turned struct {
	How  string
	Turn plan.Turn

	// Of a rollback.
	History *plan.History
	Version uint64
	Service string
}

// Decided is what was decided, as far as it takes to tell whether it is again.
type Decided struct {
	Version  uint64
	Failed   string    // why nothing was; then the plan before stays
	Sum      deep.Sum  // of the whole plan but its topology
	Services [][8]byte // the beginnings of the digests of its services
	// Change is what it changed of the shares; nil when it changed none.
	Change *plan.Change
}

// fingerprint names the types of all of it, which stay for as long as the
// program runs.
var fingerprint = sync.OnceValues(func() (string, error) {
	return deep.Fingerprint(Start{}, isobar.Topology{}, operators{}, observed{}, released{}, turned{}, Decided{})
})
