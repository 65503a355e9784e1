package rpc

import "time"

// Pace is a token bucket for what a client sends, kept as the time at which it will be
// full again. The rate may change at any time: each is the time in which one token comes
// back, burst the number of tokens of a full bucket. The zero value is a full bucket. It
// must not be used by several goroutines at once.
type Pace struct{ full time.Time }

// Wait returns how long it takes until there is a token; 0 if there is one.
func (p *Pace) Wait(now time.Time, each time.Duration, burst int) time.Duration {
	if p.full.Before(now) {
		p.full = now
	}
	// What was taken while tokens came back more slowly counts as an empty bucket at most.
	if empty := now.Add(time.Duration(burst) * each); p.full.After(empty) {
		p.full = empty
	}
	return max(0, p.full.Sub(now)-time.Duration(burst-1)*each)
}

// Take takes a token, also where there is none. Wait comes first.
func (p *Pace) Take(each time.Duration) { p.full = p.full.Add(each) }
