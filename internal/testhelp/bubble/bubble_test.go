package bubble_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// Timers that are due when they are set, in more goroutines than the race
// detector has slots, killed the process within a second.
func TestManyTimersAtOnce(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	for range 20 {
		bubble.Test(t, func(*testing.T) {
			var (
				wg    sync.WaitGroup
				fired sync.WaitGroup
			)
			for range 400 {
				wg.Go(func() {
					timer := time.NewTimer(0)
					for range 20 {
						<-timer.C
						fired.Add(1)
						time.AfterFunc(0, fired.Done)
						timer.Reset(time.Millisecond)
					}
				})
			}
			wg.Wait()
			fired.Wait()
		})
	}
	if after := runtime.GOMAXPROCS(0); after != before {
		t.Errorf("%d processors after the bubbles, %d before", after, before)
	}
}
