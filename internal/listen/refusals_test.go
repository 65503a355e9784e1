package listen

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// A checker that comes back each time it is refused is kept for some seconds, and
// named; others, and those that leave, are not.
func TestCheckersThatAreRefusedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r refusals
		denied := status.Error(codes.PermissionDenied, "isobar: probe may not act as checker")
		took := func(name string) time.Duration {
			before := time.Now()
			r.refuse(t.Context(), name, denied)
			return time.Since(before)
		}
		if d := took("a") + took("b") + took("a"); d != 0 || len(r.often(time.Now())) > 0 {
			t.Errorf("held for %s at first, %q", d, r.often(time.Now()))
		}
		if d := took("a"); d != refusedHold {
			t.Errorf("held for %s, want %s", d, refusedHold)
		}
		if got := r.often(time.Now()); len(got) != 1 || got[0] != (RefusedChecker{"a", "probe may not act as checker"}) {
			t.Errorf("named as %q", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		before := time.Now()
		r.refuse(ctx, "a", denied)
		if d := time.Since(before); d != 0 || r.held != 0 {
			t.Errorf("one that left is held for %s, %d are", d, r.held)
		}

		// No more than so many are held, and remembered.
		for range mostHeld {
			go r.refuse(t.Context(), "a", denied)
		}
		synctest.Wait()
		if d := took("a"); d != 0 {
			t.Errorf("held for %s beside %d others", d, r.held)
		}
		for i := range 2 * mostRefused {
			r.note(strings.Repeat("x", i), "", time.Now())
		}
		if n := len(r.list); n != mostRefused {
			t.Errorf("%d are remembered", n)
		}
		<-time.After(refusedWithin + time.Second)
		if got := r.often(time.Now()); len(got) > 0 || len(r.list) > 0 || r.held > 0 {
			t.Errorf("a minute later %q, %d are remembered, %d held", got, len(r.list), r.held)
		}
	})
}
