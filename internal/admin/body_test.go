package admin

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestLargeBodiesTakeTurns asserts that values of bodies together take a bounded part of the
// memory: a large body waits for the one before it, at most answerWait, and small bodies never wait.
func TestLargeBodiesTakeTurns(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		turns := newTurns()
		done, ok := turns.await(t.Context(), maxSetBytes)
		if !ok {
			t.Fatal("the first large body is refused")
		}
		begun := time.Now()
		if _, ok := turns.await(t.Context(), maxSetBytes); ok || time.Since(begun) != answerWait {
			t.Errorf("a second large body was taken: %v, after %v; want a refusal after %v", ok, time.Since(begun), answerWait)
		}
		for range maxWrites {
			if _, ok := turns.await(t.Context(), freeBody); !ok {
				t.Error("a small body is refused")
			}
		}
		if used := turns.used.Load(); used > maxDecoded+maxDecoded/4 {
			t.Errorf("values take up to %d MiB", used>>20)
		}
		time.AfterFunc(time.Second, done)
		if _, ok := turns.await(t.Context(), maxSetBytes); !ok {
			t.Error("a large body is refused though the one before it is done")
		}
	})
}
