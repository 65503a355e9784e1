// Package bubble runs tests in virtual time. Only tests import it.
package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Test is synctest.Test, on one processor where the race detector is on. All
// timers of a bubble share one context of the detector, and where two goroutines
// run timers at once, as any timer that is due when it is set does, they spoil
// that, and the process dies somewhere in the detector (golang.org/issue/78156,
// seen with Go 1.26). The detector judges by what happens before what, so it
// finds the same races on one processor.
func Test(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if raceEnabled {
		single.enter()
		defer single.leave()
	}
	synctest.Test(t, test) //nolint:forbidigo // the one place
}

// single keeps the process on one processor as long as a bubble is there.
var single processors

type processors struct {
	mu      sync.Mutex
	bubbles int
	before  int // GOMAXPROCS outside bubbles
}

func (p *processors) enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bubbles++; p.bubbles == 1 {
		p.before = runtime.GOMAXPROCS(1)
	}
}

func (p *processors) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bubbles--; p.bubbles == 0 {
		runtime.GOMAXPROCS(p.before)
	}
}
