package health

import "time"

const (
	silentIntervals = 3  // of reports without a vote, after which others do a checker's work
	patience        = 10 // intervals after which that is so even if most are silent
	mostRetries     = 5  // doublings of the time after which it is tried again
)

// silence is how well a checker does its work: one whose connection stands may
// hang, or send reports in which nothing stands.
type silence struct {
	lasts time.Duration // that it has had work and said nothing about it
	aside bool          // others do its work
	back  time.Time     // when it was, or is to be, tried again
	tries int
}

// Listen takes the activity of checkers, and reports whether to call Place: checkers that do not
// report on their designated endpoints for 3 report intervals are set aside, and tried again
// after as long, twice as long the next time, and so on, once they send anything; a new stream
// begins without this history. If most checkers stop at once, the server's own network is the
// more likely cause: they are kept for 10 intervals. Two are always kept.
//
// busy reports whether a checker has work, voted when it last did some.
func (r *Roster) Listen(now time.Time, busy func(id string) bool, voted func(id string) time.Time) (place bool) {
	passed := min(max(0, now.Sub(r.listened)), r.hold) // a pause of our own is no silence
	if r.listened.IsZero() {
		passed = 0
	}
	last := r.listened
	r.listened = now
	working, heard := 0, 0
	for i := range r.entries {
		e := &r.entries[i]
		if !e.until.IsZero() || e.aside {
			continue
		}
		if !busy(e.ID) || voted(e.ID).After(last) {
			e.lasts = 0
		} else {
			e.lasts += passed
		}
		if busy(e.ID) {
			working++
			heard += one(2*e.lasts <= 3*r.hold)
		}
	}
	for i := range r.entries {
		e := &r.entries[i]
		long := silentIntervals * r.hold
		if 2*heard < working {
			long = patience * r.hold
		}
		switch {
		case !e.until.IsZero():
		case e.aside && !now.Before(e.back) && now.Sub(e.LastSeen) <= silentIntervals*r.hold:
			e.aside, e.lasts, place = false, 0, true
		case !e.aside && e.lasts > long && heard >= twoVotes:
			e.setAside(now, r.hold)
			place, r.again = true, now.Add(restartHold)
		}
	}
	return place
}

func (s *silence) setAside(now time.Time, hold time.Duration) {
	if now.Sub(s.back) > hold*silentIntervals<<mostRetries {
		s.tries = 0
	}
	s.aside, s.back = true, now.Add(hold*silentIntervals<<s.tries)
	s.tries = min(s.tries+1, mostRetries)
}

// Silent lists the checkers that are connected and set aside, sorted by id.
func (r *Roster) Silent() []Checker {
	var out []Checker
	for i := range r.entries {
		if e := &r.entries[i]; e.aside && e.until.IsZero() {
			out = append(out, e.Checker)
		}
	}
	return out
}
