package replay_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/replay"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestNoTraceOfWhatNeverBegan: a loop that does not listen, however often it is
// asked, leaves no empty files behind.
func TestNoTraceOfWhatNeverBegan(t *testing.T) {
	dir := t.TempDir()
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		asked := 0
		r := replay.NewRoller(replay.RollOptions{Directory: dir, Keep: 24 * time.Hour, MaxBytes: 1 << 20})
		r.Run(ctx, func(context.Context, *replay.Recorder, func()) error {
			asked++
			return errors.New("too many recordings are in progress")
		})
		if asked < 30 || r.Trouble() == "" {
			t.Errorf("asked %d times, trouble: %q", asked, r.Trouble())
		}
	})
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%d files, error %v", len(left), err)
	}
}
