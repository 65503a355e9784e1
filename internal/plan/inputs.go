package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
)

// The parts of a tick's step that the rungs leave.
const (
	cautiousPace = 0.5
	decayPace    = 0.1
)

// InputAge says how old an input of a service is.
type InputAge struct {
	Service string
	Kind    InputKind
	Age     Age
}

// InputState is where an input of a service stands on the ladder.
type InputState struct {
	Input InputKind `json:"input"`
	Rung  Rung      `json:"rung"`
	Age   float64   `json:"age_seconds,omitempty"` // since too much of it is missing
	Share float64   `json:"share,omitempty"`       // of the demand that stands in for missing reports
}

// inputsOf works out where the inputs of a service stand. A rebase decides
// nothing, so it leaves them where they were.
func (d *draft) inputsOf(in *Input, prev *Service) []InputState {
	if prev != nil && len(prev.Inputs) > 0 && (in.Load == nil || in.Ladder == Ladder{}) {
		return prev.Inputs
	}
	ladder := in.Ladder
	out := make([]InputState, 0, len(Inputs()))
	for _, kind := range Inputs() {
		age, there := d.age(in, kind)
		x := InputState{Input: kind, Rung: RungAbsent}
		if there {
			x.Rung = ladder.Of(kind).Rung(age)
			x.Age = max(age.Some, age.Most).Seconds()
		}
		if kind == InputReports && d.Load != nil {
			x.Share = d.Load.Stale
		}
		if prev != nil {
			x.Rung = climb(prev.input(kind).Rung, x.Rung)
		}
		out = append(out, x)
	}
	return out
}

// age gives the age of an input, and whether the service has it at all.
func (d *draft) age(in *Input, kind InputKind) (Age, bool) {
	if kind == InputReports {
		if d.Load == nil || !slices.ContainsFunc(d.Load.Sources, wasHeard) {
			return Age{}, false
		}
		return Age(d.Load.Age), true
	}
	i, found := slices.BinarySearchFunc(in.Ages, InputAge{Service: d.Spec.Name, Kind: kind}, compareAges)
	if !found {
		return Age{}, kind == InputTopology // what is configured is never old
	}
	return in.Ages[i].Age, true
}

// wasHeard tells whether a source ever told anything that counts.
func wasHeard(l load.SourceLoad) bool { return l.Nodes+l.Held > 0 || l.Saved > 0 }

func compareAges(a, b InputAge) int {
	if c := strings.Compare(a.Service, b.Service); c != 0 {
		return c
	}
	return strings.Compare(string(a.Kind), string(b.Kind))
}

// input gives the state of an input; fresh before anything was decided.
func (s *Service) input(kind InputKind) InputState {
	for _, x := range s.Inputs {
		if x.Input == kind {
			return x
		}
	}
	return InputState{Input: kind, Rung: RungFresh}
}

// Degraded gives the input that is furthest down the ladder; false while all of
// them are fresh.
func (s *Service) Degraded() (worst InputState, ok bool) {
	for _, x := range s.Inputs {
		if x.Rung.depth() > worst.Rung.depth() {
			worst, ok = x, true
		}
	}
	return worst, ok
}

// Bound tells whether what is missing makes a difference: not where the
// decision does not look at load.
func (s *Service) Bound() bool {
	return s.Mode() != isobar.ModeObserve && !s.Spec.Policy.IgnoresLoad()
}

// String says what is missing, and since when.
func (x InputState) String() string {
	age := time.Duration(x.Age * float64(time.Second)).Round(time.Second)
	switch x.Input {
	case InputReports:
		return fmt.Sprintf("reports are missing: for %s, %.0f%% of the demand is what clients last told", age, 100*x.Share)
	case InputHealth:
		return fmt.Sprintf("health is old: too few checkers confirm it for %s", age)
	case InputTopology:
	}
	return fmt.Sprintf("endpoints are those of before: the other control plane does not list them for %s", age)
}

// Effect says what the rung does.
func (r Rung) Effect() string {
	switch r {
	case RungCautious:
		return "shares move at half the pace"
	case RungHeld:
		return "weights are held"
	case RungDecaying:
		return "shares move slowly towards a split by capacity"
	case RungFresh, RungAbsent:
	}
	return ""
}

// degrade lets the ladder bind what is decided: it slows down, holds, or gives
// new targets. Whatever else holds comes first.
func (d *draft) degrade(in *assign.Input) {
	worst, ok := d.Degraded()
	if !ok || !d.Bound() || d.Hold != "" {
		return
	}
	switch worst.Rung {
	case RungCautious:
		in.Pace = cautiousPace
	case RungDecaying:
		in.Pace = decayPace
	case RungHeld, RungFresh, RungAbsent:
		return
	}
	in.Slow = worst.String() + ": " + worst.Rung.Effect()
}

// heldByInputs says why weights are held for missing input; empty when they
// are not.
func (d *draft) heldByInputs() string {
	if worst, ok := d.Degraded(); ok && d.Bound() && worst.Rung == RungHeld {
		return worst.String()
	}
	return ""
}

// decays tells whether shares go towards a split by capacity: of all ways to be
// wrong about where load is, the one that fills no locality more than another.
func (s *Service) decays() bool {
	worst, ok := s.Degraded()
	return ok && worst.Rung == RungDecaying && s.Bound() && s.Hold == ""
}

// InputCount is how many services are on a rung for an input.
type InputCount struct {
	Input    InputKind
	Rung     Rung
	Services int
}

// CountInputs counts the services by input and rung; every pair is there.
func (p *Plan) CountInputs() []InputCount {
	var out []InputCount
	for _, kind := range Inputs() {
		for _, rung := range Rungs() {
			x := InputCount{Input: kind, Rung: rung}
			for _, s := range p.Services {
				if len(s.Inputs) > 0 && s.input(kind).Rung == rung {
					x.Services++
				}
			}
			out = append(out, x)
		}
	}
	return out
}
