package fleet

import (
	"fmt"
	"strings"
	"time"
)

// settleSpan is the length of the moving windows that tell whether a fleet has
// settled: over three slots the randomness of arrivals is small.
const settleSpan = 3

// Settled returns how long after an event at one offset the fleet had converged:
// from then until another offset in every moving window of three slots no zone
// is loaded above the limit and no request fails. When it has not, why tells
// what was amiss in the last of these windows, else why is empty.
func (r *Recorder) Settled(event, end time.Duration, limit float64) (after time.Duration, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, last := int(event/r.slot), int(end/r.slot)-settleSpan
	settled := last + 1
	for i := last; i >= first; i-- {
		w := r.sum(i, i+settleSpan)
		if why = w.trouble(limit); why != "" {
			break
		}
		settled = i
	}
	if settled > last {
		return 0, fmt.Sprintf("in the last %v %s", settleSpan*r.slot, why)
	}
	return time.Duration(settled-first) * r.slot, ""
}

// trouble returns what keeps a window from being that of a converged fleet; it is
// empty when nothing does.
func (s *Summary) trouble(limit float64) string {
	if s.Requests == 0 {
		return "nothing was sent"
	}
	var what []string
	if l, load := s.Fullest(); load > limit {
		what = append(what, fmt.Sprintf("%s was loaded at %.0f%%, above %.0f%%", l, 100*load, 100*limit))
	}
	if s.Failed > 0 {
		what = append(what, fmt.Sprintf("%d of %d requests failed (%s)", s.Failed, s.Requests, joinCauses(s.Causes)))
	}
	return strings.Join(what, " and ")
}
