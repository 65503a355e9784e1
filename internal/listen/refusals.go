package listen

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/status"
)

// RefusedChecker is a checker that is refused again and again.
type RefusedChecker struct{ Name, Why string }

// RefusedCheckers lists the checkers that are refused again and again, by name.
func (g *entrance) RefusedCheckers() []RefusedChecker { return g.refusals.often(time.Now()) }

const (
	// refusedHold is how long the stream of a checker that is refused again and
	// again is kept before it ends: Envoy is back within half a second.
	refusedHold = 4 * time.Second
	// refusedOften is from which refusal on, within refusedWithin of the one
	// before, a checker is held and named.
	refusedOften  = 3
	refusedWithin = time.Minute

	mostRefused = 1_000 // that are remembered
	mostHeld    = 100   // that are held at once; more are refused at once
)

// refusals are the checkers that are refused again and again, by what they call
// themselves. The zero value is ready to use.
type refusals struct {
	mu   sync.Mutex
	list map[string]*refusal
	held int
}

type refusal struct {
	count int
	last  time.Time
	why   string
}

// refuse notes that a checker is refused, and keeps one that comes again and
// again for a while.
func (r *refusals) refuse(ctx context.Context, name string, err error) {
	if !r.note(name, status.Convert(err).Message(), time.Now()) {
		return
	}
	timer := time.NewTimer(refusedHold)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held--
}

// note counts a refusal, and reports whether to hold it.
func (r *refusals) note(name, why string, now time.Time) (hold bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now)
	x := r.list[name]
	if x == nil {
		if len(r.list) >= mostRefused {
			return false
		}
		if r.list == nil {
			r.list = map[string]*refusal{}
		}
		x = &refusal{}
		r.list[name] = x
	}
	x.count++
	x.last, x.why = now, why
	hold = x.count >= refusedOften && r.held < mostHeld
	if hold {
		r.held++
	}
	return hold
}

// forget drops those that have not come for a while. The caller holds the lock.
func (r *refusals) forget(now time.Time) {
	for name, x := range r.list {
		if now.Sub(x.last) > refusedWithin {
			delete(r.list, name)
		}
	}
}

// often lists the checkers that are refused again and again.
func (r *refusals) often(now time.Time) (out []RefusedChecker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now)
	for _, name := range slices.Sorted(maps.Keys(r.list)) {
		if x := r.list[name]; x.count >= refusedOften {
			out = append(out, RefusedChecker{name, strings.TrimPrefix(x.why, "isobar: ")})
		}
	}
	return out
}
