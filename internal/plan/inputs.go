package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// The parts of a tick's step that the levels leave.
const (
	cautiousPace = 0.5
	decayPace    = 0.1
)

// InputAge says how old an input of a service is.
type InputAge struct {
	Service string
	Kind    InputKind
	Age     load.Age
}

// InputState is the state of an input of a service.
type InputState struct {
	Input InputKind        `json:"input"`
	Level DegradationLevel `json:"level"`
	Age   float64          `json:"age_seconds,omitempty"` // seconds for which too much of it has been missing
	Share float64          `json:"share,omitempty"`       // fraction of the demand that replaces missing reports
}

// inputsOf works out where the inputs of a service stand, given what was measured. A reapplication
// decides nothing, so it leaves them where they were.
func inputsOf(in *Input, service string, measured *load.ServiceLoad, prev *Service) []InputState {
	if prev != nil && len(prev.Inputs) > 0 && (in.Load == nil || in.Degradation == Degradation{}) {
		return prev.Inputs
	}
	degradation := in.Degradation
	out := make([]InputState, 0, len(Inputs()))
	for _, kind := range Inputs() {
		age, there := ageOf(in, kind, service, measured)
		x := InputState{Input: kind, Level: LevelAbsent}
		if there {
			x.Level = degradation.Of(kind).Level(age)
			x.Age = max(age.Some, age.Most).Seconds()
		}
		if kind == InputReports && measured != nil {
			x.Share = measured.Stale
		}
		if prev != nil {
			x.Level = climb(prev.input(kind).Level, x.Level)
		}
		out = append(out, x)
	}
	return out
}

// ageOf returns the age of an input, and whether the service has it at all.
func ageOf(in *Input, kind InputKind, service string, measured *load.ServiceLoad) (load.Age, bool) {
	if kind == InputReports {
		if measured == nil || !slices.ContainsFunc(measured.Sources, hasReported) {
			return load.Age{}, false
		}
		return measured.Age, true
	}
	i, found := slices.BinarySearchFunc(in.Ages, InputAge{Service: service, Kind: kind}, compareAges)
	if !found {
		return load.Age{}, kind == InputTopology // what is configured is never old
	}
	return in.Ages[i].Age, true
}

// hasReported reports whether a source ever sent a report that counts.
func hasReported(l load.SourceLoad) bool { return l.Nodes+l.Held > 0 || l.Saved > 0 }

func compareAges(a, b InputAge) int {
	if c := strings.Compare(a.Service, b.Service); c != 0 {
		return c
	}
	return strings.Compare(string(a.Kind), string(b.Kind))
}

// input returns the state of an input; fresh before anything was decided.
func (s *Service) input(kind InputKind) InputState {
	for _, x := range s.Inputs {
		if x.Input == kind {
			return x
		}
	}
	return InputState{Input: kind, Level: LevelFresh}
}

// Degraded returns the input that is most degraded; false while all of
// them are fresh.
func (s *Service) Degraded() (worst InputState, ok bool) {
	for _, x := range s.Inputs {
		if x.Level.depth() > worst.Level.depth() {
			worst, ok = x, true
		}
	}
	return worst, ok
}

// Bound reports whether what is missing makes a difference: not where the
// decision does not look at load.
func (s *Service) Bound() bool {
	return s.Mode() != isobar.ModeObserve && !s.Spec.Policy.IgnoresLoad()
}

// String says what is missing, and since when.
func (x InputState) String() string {
	age := time.Duration(x.Age * float64(time.Second)).Round(time.Second)
	switch x.Input {
	case InputReports:
		return fmt.Sprintf("reports are missing: for %s, %.0f%% of the demand has come only from clients' last reports", age, 100*x.Share)
	case InputHealth:
		return fmt.Sprintf("health is old: too few checkers confirm it for %s", age)
	case InputTopology:
	}
	return fmt.Sprintf("the previous endpoints are in use: the other control plane has not listed them for %s", age)
}

// Effect says what the level does.
func (r DegradationLevel) Effect() string {
	switch r {
	case LevelCautious:
		return "shares move at half the pace"
	case LevelHeld:
		return "weights are held"
	case LevelDecaying:
		return "shares move slowly towards a split by capacity"
	case LevelFresh, LevelAbsent:
	}
	return ""
}

// slowdown returns the part of a step that degradation leaves a tick, and why; 0 where it
// leaves all of it. Whatever else holds comes first.
func slowdown(s *Service) (pace float64, why string) {
	worst, ok := s.Degraded()
	if !ok || !s.Bound() || s.Hold != "" {
		return 0, ""
	}
	switch worst.Level {
	case LevelCautious:
		pace = cautiousPace
	case LevelDecaying:
		pace = decayPace
	case LevelHeld, LevelFresh, LevelAbsent:
		return 0, ""
	}
	return pace, worst.String() + ": " + worst.Level.Effect()
}

// heldByInputs says why weights are held for missing input; empty when they
// are not.
func heldByInputs(s *Service) string {
	if worst, ok := s.Degraded(); ok && s.Bound() && worst.Level == LevelHeld {
		return worst.String()
	}
	return ""
}

// decays reports whether shares go towards a split by capacity: of all ways to be
// wrong about where load is, the one that fills no locality more than another.
func (s *Service) decays() bool {
	worst, ok := s.Degraded()
	return ok && worst.Level == LevelDecaying && s.Bound() && s.Hold == ""
}

// InputCount is how many services are on a level for an input.
type InputCount struct {
	Input    InputKind
	Level    DegradationLevel
	Services int
}

// CountInputs counts the services by input and level; every pair is there.
func CountInputs(services []*Service) []InputCount {
	var out []InputCount
	for _, kind := range Inputs() {
		for _, level := range degradationLevels() {
			x := InputCount{Input: kind, Level: level}
			for _, s := range services {
				if len(s.Inputs) > 0 && s.input(kind).Level == level {
					x.Services++
				}
			}
			out = append(out, x)
		}
	}
	return out
}

// SilentClients are clients of a locality that subscribe to a service and report no
// load.
type SilentClients struct {
	Source  isobar.Locality
	Clients int
}

// CoverageBesides returns Coverage less the estimated demand of clients that do not report:
// each counts as the mean of its source's reporting clients, or as the mean of all if its
// source has none.
func (s *Service) CoverageBesides(silent []SilentClients) float64 {
	if len(silent) == 0 {
		return s.Coverage
	}
	demand, nodes := 0.0, 0
	reporting := map[isobar.Locality]float64{} // the mean demand of a client
	if s.Load != nil {
		for i := range s.Load.Sources {
			src := &s.Load.Sources[i]
			n := src.Nodes + src.Held
			demand += src.Demand
			nodes += n
			if n > 0 {
				reporting[src.Source] = src.Demand / float64(n)
			}
		}
	}
	hidden, clients := 0.0, 0
	for _, x := range silent {
		clients += x.Clients
		mean, known := reporting[x.Source]
		if !known && nodes > 0 {
			mean = demand / float64(nodes)
		}
		hidden += mean * float64(x.Clients)
	}
	switch {
	case clients == 0:
		return s.Coverage
	case demand > 0 && hidden > 0:
		return s.Coverage * demand / (demand + hidden)
	}
	return s.Coverage * float64(nodes) / float64(nodes+clients)
}
