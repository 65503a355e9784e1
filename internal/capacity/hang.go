package capacity

import "math"

// Rules of hangs.
const (
	hangs     = 0.98 // part that fails while a locality hangs
	hangsUpTo = 1.1  // of the rate that was served before: above it the same is overload
	hungRate  = 5.0  // requests in a window, from which on it may show a hang
	begins    = 3    // windows in which a hang begins, at most: clients report at different times, and wait for timeouts
	ends      = 2    // windows in which it ends, at most
	leastLeft = 0.01 // part of the units that leave, below which it explains nothing
	failingBy = 2.0  // part of the requests that fails, as a multiple of the units that left, up to which they explain it
)

// hang distinguishes servers that hang from servers that are full. In both cases requests fail,
// and many are in progress, but the requests in progress at hanging servers are no evidence about
// their capacity.
type hang struct {
	served float64 // the highest rate of a unit at which nearly all succeeded; it fades
	ending int     // windows in which requests may still fail because of a hang
	jump   jump
	alone  bool    // no window before confirms the requests in progress, and their rate was served
	before *Model  // the model before requests failed or piled up at a rate that was served; nil = they do not
	since  int     // windows with failed requests that were taken since
	worst  float64 // the largest part of the requests that failed in one of them
	found  bool    // endpoints left, which explained the failures until now
}

// shows reports whether no request succeeds at a rate that was served before.
func (h *hang) shows(w *Window) bool {
	return w.Failing >= hangs && w.Rate*w.Seconds >= hungRate && w.Rate/w.Units <= hangsUpTo*h.served
}

// explained reports whether endpoints left since the window before, of which there were units,
// and all failures at a rate that was served may have been theirs: health checks have found
// endpoints that hang or are dead. What requests to them experienced tells nothing about the
// others. Endpoints explain failures once until requests succeed again: those that leave and
// come back while the others are overloaded, or that overload takes one by one, hide nothing.
func (h *hang) explained(w *Window, units float64) bool {
	left := 1 - w.Units/units // NaN or below 0 at first
	return !h.found && left > leastLeft && h.usual(w, units) && max(w.Failing, h.worst) <= failingBy*left
}

// usual reports whether the rate of a window, at so many units, was served before.
func (h *hang) usual(w *Window, units float64) bool {
	served := hangsUpTo * h.served * units * w.Seconds // requests
	return w.Rate*w.Seconds <= served+sigmas*math.Sqrt(served)
}

// endsIn reports whether requests fail in a window because the hang before it ends in it,
// and counts the window.
func (h *hang) endsIn(w *Window) bool {
	if w.Failing < diedWithin {
		h.ending, h.found = 0, false
	}
	if h.ending == 0 {
		return false
	}
	h.ending--
	return true
}

// suspendJudgement keeps the estimate when requests begin to fail or to pile up at a rate that
// was served: the next windows show whether servers are overloaded or begin to hang. It follows
// the rate that is served.
func (m *Model) suspendJudgement(w *Window) {
	h, rate := &m.hang, w.Rate/w.Units
	jump, fails := h.jump, w.Failing >= diedWithin
	h.jump.observe(w)
	h.alone = h.jump.high == 1 && h.usual(w, w.Units)
	switch {
	case rate > hangsUpTo*h.served, !fails && h.jump.high == 0:
		h.before, h.since, h.worst = nil, 0, 0
	case h.before == nil && h.since == 0 && (fails || h.jump.high == 1):
		known := *m
		known.hang.jump = jump
		h.before = &known
	}
	if fails && (h.before != nil || h.since > 0) {
		h.worst = max(h.worst, w.Failing)
		if h.since++; h.since > begins {
			h.before = nil
		}
	}
	h.served *= 1 - forget
	if !fails {
		h.served = max(h.served, rate)
	}
}

// jump recognizes windows with far more requests in progress than before. A single one is weak
// evidence if the rate was served before: requests in progress are counted at one moment, and in a
// pause of 100 ms of the servers or of a client (a garbage collection, for example) as many are in
// progress as in an overload.
type jump struct {
	usual float64 // requests in progress for each request/s, a mean of recent windows
	high  int     // windows since the jump; 0 = there is none
}

// Rules of jumps.
const (
	jumped       = 2.0 // times the usual number, beside chance
	recentJumped = 0.3 // weight of a window in the usual number
)

func (j *jump) observe(w *Window) {
	if w.Sampled <= 0 {
		return
	}
	held := max(0, w.InProgress-w.Network)
	expected := j.usual * w.Sampled
	switch high := expected > 0 && held > jumped*expected+sigmas*math.Sqrt(expected); {
	case high && j.high < begins:
		j.high++
	case high || j.usual == 0: // this is usual now
		j.usual, j.high = held/w.Sampled, 0
	default:
		j.usual += recentJumped * (held/w.Sampled - j.usual)
		j.high = 0
	}
}

// undo restores the model from before the hang.
func (m *Model) undo() {
	if m.hang.before != nil {
		*m = *m.hang.before
	}
	m.hang.ending = ends
}
