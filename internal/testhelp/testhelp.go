// Package testhelp holds what tests of several packages need. Only tests import
// it.
package testhelp

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

// patience is far more than anything waited for takes: a busy machine is slow.
const patience = 30 * time.Second

// Eventually waits until something that happens outside a bubble of virtual time
// holds. The test fails when it does not within 30 s.
func Eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			tb.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// Log is a log that a test reads while others write. The zero value is ready.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write takes what is logged.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String gives all that was logged.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
