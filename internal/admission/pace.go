package admission

import "time"

// Bounds of what streams above the rate of their address cost. To refuse one takes
// microseconds, so that who opens them without end would take a core from all others.
const (
	excessTakes = 100 * time.Microsecond // 10,000 a second of one address
	excessWaits = 10 * time.Millisecond  // at most, for each: who opens few hardly waits for who opens many
	longestWait = 10 * time.Second       // below the time in which a ping has to be answered
)

// Pace slows down addresses that open more streams than the rate of one allows. Who
// lets them in refuses these; at its pace an address finds that out. It is safe for
// concurrent use.
type Pace struct{ rate *Rate }

// NewPace makes one for the same limits as [NewRate].
func NewPace(rate float64, burst int, now time.Time) *Pace { return &Pace{NewRate(rate, burst, now)} }

// Wait is how long to wait before so many more streams of an address are looked at.
func (p *Pace) Wait(address string, streams int, now time.Time) time.Duration {
	r := p.rate
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.bucketOf(address, now)
	own.fill(now, r.rate/2, r.half())
	within := min(int(own.tokens), streams)
	own.tokens -= float64(within)
	excess := streams - within
	if excess == 0 {
		return 0
	}
	if own.due.Before(now) {
		own.due = now
	}
	own.due = own.due.Add(time.Duration(excess) * excessTakes)
	if latest := now.Add(longestWait); own.due.After(latest) {
		own.due = latest
	}
	return min(own.due.Sub(now), time.Duration(excess)*excessWaits)
}
