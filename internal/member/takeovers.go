package member

import (
	"sync"
	"time"
)

const (
	// takeoverAttempts is how often in a row a leader fails to take over, once a tick, before
	// it gives leadership to another replica.
	takeoverAttempts = 6
	// handOverEvery bounds how often it does so while no replica can take over.
	handOverEvery = 5 * time.Minute
)

// takeovers keeps why this replica could not take over, and decides when it gives leadership
// to another replica. What it can't read may be its own trouble, or that of its version: then
// another replica takes over. If all replicas fail, as with damaged data of the group, the
// last one keeps leadership and tries again: neither changes of the leader nor restarts help.
type takeovers struct {
	mu       sync.Mutex
	why      string // "" = it could take over, or another replica has led since
	epoch    uint64 // of the last attempt
	failed   int    // attempts in this epoch
	gaveUpAt time.Time
}

// failure returns why this replica could not take over when it led last.
func (t *takeovers) failure() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.why
}

// succeeded notes that this replica took over.
func (t *takeovers) succeeded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.why, t.failed, t.gaveUpAt = "", 0, time.Time{}
}

// ledBy notes that the plan in force is of another leader, of an epoch.
func (t *takeovers) ledBy(epoch uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if epoch > t.epoch {
		t.why, t.failed, t.gaveUpAt = "", 0, time.Time{}
	}
}

// fails notes that an attempt failed, and reports whether this replica has to give up
// leadership. successors lists the replicas that may succeed.
func (t *takeovers) fails(epoch uint64, why string, now time.Time, successors func() []string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if epoch != t.epoch {
		t.epoch, t.failed = epoch, 0
	}
	t.why = why
	t.failed++
	if t.failed < takeoverAttempts || !t.gaveUpAt.IsZero() && now.Sub(t.gaveUpAt) < handOverEvery || len(successors()) == 0 {
		return false
	}
	t.gaveUpAt = now
	return true
}
