package admission

import (
	"sync"
	"time"
)

// bucket is a token bucket.
type bucket struct {
	tokens float64
	last   time.Time
	due    time.Time // of Pace: when the excess above the rate is worked off
}

// fill adds the tokens since the last call. A clock that goes back adds nothing.
func (b *bucket) fill(now time.Time, rate, burst float64) {
	if d := now.Sub(b.last); d > 0 {
		b.tokens = min(burst, b.tokens+rate*d.Seconds())
		b.last = now
	}
}

// Bounds on the remembered addresses.
const (
	maxAddresses = 16_384
	sweepEvery   = time.Second
)

// Rate limits how many come in, in total and from one address, which gets at
// most half: a flood from one address leaves the other half to others. It is safe
// for concurrent use.
type Rate struct {
	rate, burst float64 // of all together; half of it for an address

	mu        sync.Mutex
	all       bucket
	addresses map[string]*bucket // those whose bucket is not full
	others    bucket             // shared by the addresses beyond the bound
	swept     time.Time
}

// NewRate makes a limit of rate a second, and burst at once.
func NewRate(rate float64, burst int, now time.Time) *Rate {
	b := float64(max(1, burst))
	r := &Rate{rate: rate, burst: b, all: bucket{tokens: b, last: now}, addresses: map[string]*bucket{}}
	r.others = bucket{tokens: r.half(), last: now}
	return r
}

// half is how many of one address come in at once.
func (r *Rate) half() float64 { return max(1, r.burst/2) }

// Take lets one in, or returns the reason why not.
func (r *Rate) Take(address string, now time.Time) (refused Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.fill(now, r.rate, r.burst)
	own := r.bucketOf(address, now)
	own.fill(now, r.rate/2, r.half())
	switch {
	case own.tokens < 1:
		return PeerRate
	case r.all.tokens < 1:
		return TotalRate
	}
	own.tokens--
	r.all.tokens--
	return ""
}

func (r *Rate) bucketOf(address string, now time.Time) *bucket {
	if b := r.addresses[address]; b != nil {
		return b
	}
	if len(r.addresses) >= maxAddresses && now.Sub(r.swept) >= sweepEvery {
		r.swept = now
		for a, b := range r.addresses { // a full bucket need not be remembered
			if b.fill(now, r.rate/2, r.half()); b.tokens >= r.half() {
				delete(r.addresses, a)
			}
		}
	}
	if len(r.addresses) >= maxAddresses {
		return &r.others
	}
	b := &bucket{tokens: r.half(), last: now}
	r.addresses[address] = b
	return b
}

// Bounds of the cost of streams above the rate of their address. To refuse one takes
// microseconds, so a client that opens them without end would take a core from all others.
const (
	excessTakes = 100 * time.Microsecond // 10,000 a second of one address
	excessWaits = 10 * time.Millisecond  // at most, for each: clients with few streams hardly wait for clients with many
	longestWait = 10 * time.Second       // below the time in which a ping has to be answered
)

// Pace slows down addresses that open more streams than the rate of one allows. The caller
// refuses these streams; Pace spreads the refusals. It is safe for concurrent use.
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
