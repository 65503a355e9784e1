package plan

import "fmt"

// InputState is a rung of the ladder on which a service goes down as its load
// reports go missing, and up again as they come back. Reports that are missing
// are not load that is gone: what was last told stands in for three intervals
// and then fades, and a source of which nothing is left is served by headroom.
type InputState string

// The rungs.
const (
	InputFresh  InputState = "fresh"
	InputStale  InputState = "stale"  // more than a fifth stands in: shares move at half the pace
	InputHeld   InputState = "held"   // more than half: weights are held
	InputAbsent InputState = "absent" // nothing was ever told, or nothing is left
)

const (
	staleShare = 0.2
	heldShare  = 0.5
	// cautious is the part of a step that is allowed on stale input.
	cautious = 0.5
)

// Reports tells on which rung the service's load reports are.
func (s *Service) Reports() InputState {
	if s.Load == nil {
		return InputAbsent
	}
	told := false
	for i := range s.Load.Sources {
		told = told || s.Load.Sources[i].Nodes+s.Load.Sources[i].Held > 0
	}
	switch {
	case !told:
		return InputAbsent
	case s.Load.Stale > heldShare:
		return InputHeld
	case s.Load.Stale > staleShare:
		return InputStale
	}
	return InputFresh
}

// pace is the part of a step that the inputs allow.
func (s *Service) pace() float64 {
	if s.Reports() == InputStale {
		return cautious
	}
	return 1
}

// heldByReports says why weights are held for missing reports; empty when they
// are not.
func (s *Service) heldByReports() string {
	if s.Reports() != InputHeld {
		return ""
	}
	return fmt.Sprintf("reports are missing: %.0f%% of the demand is what clients last told", 100*s.Load.Stale)
}
