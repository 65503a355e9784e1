package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
)

// ScoreExplained is how well what was predicted of a service agrees with what
// was then seen. All parts are from 0 to 1, 1 = just as predicted.
type ScoreExplained struct {
	Score     float64 `json:"score"`     // the least of the parts that count
	Adherence float64 `json:"adherence"` // share of the requests that landed as the served shares say
	// Utilization is 1 less the mean error of utilization; nil where none is
	// reported, or no capacity is known.
	Utilization *float64 `json:"utilization,omitempty"`
	// Demand is 1 less the error of the forecast of demand. It counts in mode
	// observe only.
	Demand   *float64  `json:"demand,omitempty"`
	Windows  int       `json:"windows"`  // that it is told from
	Requests float64   `json:"requests"` // in them that were held against the shares
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
}

// Explain tells how well what was predicted lately of a service in a mode agrees with
// what was then seen; nil while there is too little to tell.
func (s *Scores) Explain(mode isobar.Mode) *ScoreExplained {
	sum, ok := s.Sum()
	if !ok {
		return nil
	}
	out := &ScoreExplained{Windows: len(s.Windows), Requests: sum.Judged, From: sum.From, To: sum.To}
	out.Score, _ = sum.Score(mode)
	out.Adherence, _ = sum.Adherence()
	if u, ok := sum.Utilization(); ok {
		out.Utilization = &u
	}
	if d, ok := sum.Demand(); ok {
		out.Demand = &d
	}
	return out
}

// Score is the score that Explain tells; false where it tells nothing.
func (s *Scores) Score(mode isobar.Mode) (score float64, ok bool) {
	sum, ok := s.Sum()
	if ok {
		score, _ = sum.Score(mode)
	}
	return score, ok
}

// String says it in a line.
func (e *ScoreExplained) String() string {
	parts := []string{fmt.Sprintf("landing %.3f", e.Adherence)}
	if e.Utilization != nil {
		parts = append(parts, fmt.Sprintf("utilization %.3f", *e.Utilization))
	}
	if e.Demand != nil {
		parts = append(parts, fmt.Sprintf("demand %.3f", *e.Demand))
	}
	return fmt.Sprintf("%.3f over %s and %.0f requests (%s)", e.Score, e.To.Sub(e.From).Round(time.Second), e.Requests, strings.Join(parts, ", "))
}
