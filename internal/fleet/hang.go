package fleet

import (
	"fmt"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
)

// HangEvent makes one backend of a zone hang for a while: it accepts requests
// and health checks and never answers.
type HangEvent struct {
	Zone  isobar.Locality
	After time.Duration // from the end of the step
	For   time.Duration // 0 = nothing hangs
}

// quietSpan is how long before the end of a hang no request may reach the
// backend any more, if it counts as drained.
const quietSpan = time.Second

// HangOutcome is how a mode fared while a backend hung. All times are in
// seconds; those of what did not happen are 0.
type HangOutcome struct {
	Zone    isobar.Locality `json:"zone"`
	Seconds float64         `json:"seconds"` // how long it hung; 0 = nothing did
	// Found says that health checkers agreed that it is down, As what.
	Found        bool                `json:"found"`
	FoundSeconds float64             `json:"found_seconds"` // from the beginning of the hang
	As           isobar.HealthStatus `json:"as,omitzero"`
	// Drained says that no request reached it any more in the last second.
	Drained        bool    `json:"drained"`
	DrainedSeconds float64 `json:"drained_seconds"` // from the beginning of the hang until the last request came
	Failed         uint64  `json:"failed"`          // requests that it had and that failed
	// Back says that it got requests again after the hang.
	Back        bool    `json:"back"`
	BackSeconds float64 `json:"back_seconds"` // from the end of the hang until the first request came
}

// hangWatch sees what happens at the backend that hangs.
type hangWatch struct {
	mu           sync.Mutex
	began, ended time.Time
	last         time.Time // arrival during the hang
	first        time.Time // arrival after it
}

// arrived counts a request that reached the backend.
func (h *hangWatch) arrived(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.began.IsZero():
	case h.ended.IsZero():
		h.last = now
	case h.first.IsZero():
		h.first = now
	}
}

// begin and end are called right when the backend hangs and works again.
func (h *hangWatch) begin(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = now
}

func (h *hangWatch) end(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = now
}

// outcome sums up what was seen at a backend and believed of it.
func (h *hangWatch) outcome(address string, believed *beliefs) HangOutcome {
	h.mu.Lock()
	defer h.mu.Unlock()
	var o HangOutcome
	if h.ended.IsZero() {
		return o
	}
	o.Seconds = h.ended.Sub(h.began).Seconds()
	if at, as, ok := believed.down(address, h.began, h.ended); ok {
		o.Found, o.FoundSeconds, o.As = true, at.Sub(h.began).Seconds(), as
	}
	if h.ended.Sub(later(h.began, h.last)) >= quietSpan {
		o.Drained, o.DrainedSeconds = true, later(h.began, h.last).Sub(h.began).Seconds()
	}
	// A backend that was never drained does not come back either.
	if o.Drained && !h.first.IsZero() {
		o.Back, o.BackSeconds = true, h.first.Sub(h.ended).Seconds()
	}
	return o
}

// faults lists what was not as it should be.
func (o *HangOutcome) faults() []string {
	var why []string
	switch {
	case o.Seconds == 0:
	case !o.Found:
		why = append(why, fmt.Sprintf("health checkers did not find the backend in %s that hung for %.0f s", o.Zone, o.Seconds))
	case !o.Drained:
		why = append(why, fmt.Sprintf("the backend in %s that hung was found after %.1f s but still got requests", o.Zone, o.FoundSeconds))
	case !o.Back:
		why = append(why, fmt.Sprintf("the backend in %s that had hung got no more requests", o.Zone))
	}
	return why
}
