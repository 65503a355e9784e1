package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// failure is a request that failed.
type failure struct {
	ended time.Duration // from the beginning of the run
	cause string
	at    string // the address of the backend that had the request; empty when none had
}

// Cause is why requests failed, and how many.
type Cause struct {
	What  string `json:"what"` // a gRPC status code for instance
	Count uint64 `json:"count"`
}

// String implements [fmt.Stringer].
func (c Cause) String() string { return fmt.Sprintf("%d %s", c.Count, c.What) }

// unknownCause stands for failures of which nobody said why.
const unknownCause = "unknown"

// causesOf counts the causes of failures, the most frequent first.
func causesOf(failures []failure) []Cause {
	counts := make(map[string]uint64)
	for _, f := range failures {
		counts[cmp.Or(f.cause, unknownCause)]++
	}
	var out []Cause
	for what, n := range counts {
		out = append(out, Cause{What: what, Count: n})
	}
	slices.SortFunc(out, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.What, b.What))
	})
	return out
}

func joinCauses(causes []Cause) string {
	var parts []string
	for _, c := range causes {
		parts = append(parts, c.String())
	}
	return strings.Join(parts, ", ")
}

// FailedUnderWay counts the requests that were due in a window of a run, but
// failed after an event at an offset at or after its end. The window is rounded
// down to whole slots.
func (r *Recorder) FailedUnderWay(from, to, event time.Duration) uint64 {
	return r.countFailures(from, to, func(f *failure) bool { return f.ended >= event })
}

func (r *Recorder) countFailures(from, to time.Duration, counts func(*failure) bool) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var n uint64
	for i := max(0, int(from/r.slot)); i < min(int(to/r.slot), len(r.slots)); i++ {
		for j := range r.slots[i].failures {
			if counts(&r.slots[i].failures[j]) {
				n++
			}
		}
	}
	return n
}

// FailedAt counts the requests that were due in a window of a run, and that a
// backend had when they failed, from one offset on and before another. The
// window is rounded down to whole slots.
func (r *Recorder) FailedAt(backend string, from, to, since, before time.Duration) uint64 {
	return r.countFailures(from, to, func(f *failure) bool {
		return f.at == backend && f.ended >= since && f.ended < before
	})
}
