package plan

import (
	"fmt"
	"time"

	"github.com/isobar-xds/isobar"
)

// RolloutExplained is how far a service in mode auto has come, and what it takes
// to go on.
type RolloutExplained struct {
	Mode   isobar.Mode `json:"mode"`             // that is served
	Until  isobar.Mode `json:"until"`            // the furthest that is allowed
	Good   int         `json:"good"`             // windows in a row whose score speaks for a step forward
	Needed int         `json:"needed,omitempty"` // of them for the step; 0 = there is none to take
	Failed int         `json:"failed"`           // steps back that were not made good for
	Trial  int         `json:"trial"`            // windows for which the last step is still on trial

	Stepped  time.Time `json:"stepped,omitzero"`
	Why      string    `json:"why,omitempty"`  // of the last step
	Back     bool      `json:"back,omitempty"` // the last step was one back
	Promoted int       `json:"promoted"`       // steps forward so far
	Demoted  int       `json:"demoted"`        // steps back so far
}

// Explain tells how far mode auto has come by the rules of a promotion; nil with other
// modes.
func (t *Rollout) Explain(rules isobar.Promotion) *RolloutExplained {
	if t == nil {
		return nil
	}
	p := rules.WithDefaults()
	out := &RolloutExplained{
		Mode: t.Mode, Until: p.Until, Good: t.Good, Failed: t.Failed, Trial: t.Trial,
		Stepped: t.Stepped, Why: t.Why, Back: t.Back, Promoted: t.Promoted, Demoted: t.Demoted,
	}
	if t.ahead(p) {
		out.Needed = t.needed(p)
	}
	return out
}

// String says it in a line.
func (e *RolloutExplained) String() string {
	text := fmt.Sprintf("serving %s", e.Mode)
	if !e.Stepped.IsZero() {
		text += " since " + e.Stepped.UTC().Format(time.RFC3339)
	}
	if e.Needed > 0 {
		text += fmt.Sprintf(", %d of %d good windows for %s", e.Good, e.Needed, e.Mode-1)
	}
	if e.Why != "" {
		text += "; " + e.Why
	}
	return text
}
