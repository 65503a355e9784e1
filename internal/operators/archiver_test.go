package operators_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/operators"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestArchiverTriesAgain: a change that could not be written is written as soon as the disk
// works again, without another change.
func TestArchiverTriesAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		state := t.TempDir()
		a := operators.OpenArchiver(state, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		done := make(chan struct{})
		go func() { defer close(done); a.Run() }()
		history := filepath.Join(state, "history")
		if err := os.RemoveAll(history); err != nil {
			t.Fatal(err)
		}
		a.Add(plan.Change{Version: 7, Made: time.Now()})
		pass(20 * time.Second)
		if a.Unsaved() == "" {
			t.Error("without its directory the history counts as saved")
		}
		if err := os.Mkdir(history, 0o700); err != nil {
			t.Fatal(err)
		}
		pass(6 * time.Second)
		if got := a.Unsaved(); got != "" {
			t.Errorf("6 s after the directory is back: %s", got)
		}
		if files, err := os.ReadDir(history); err != nil || len(files) != 1 {
			t.Errorf("files: %v, %v", files, err)
		}
		a.End()
		<-done
	})
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}
