package operators_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/operators"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp"
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

// TestHistoryInMemoryIsNotSaved asserts that a history which can't be opened on disk counts as
// not saved until the server stops, however many changes come.
func TestHistoryInMemoryIsNotSaved(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		state := t.TempDir()
		if err := os.WriteFile(filepath.Join(state, "history"), nil, 0o600); err != nil { // no directory
			t.Fatal(err)
		}
		log := &testhelp.Log{}
		a := operators.OpenArchiver(state, slog.New(slog.NewTextHandler(log, nil)), prometheus.NewRegistry())
		done := make(chan struct{})
		go func() { defer close(done); a.Run() }()
		for v := range uint64(3) {
			if a.Unsaved() == "" {
				t.Errorf("after %d changes the history in memory counts as saved", v)
			}
			a.Add(plan.Change{Version: v + 1, Made: time.Now()})
			pass(10 * time.Second)
		}
		if strings.Contains(log.String(), "works again") {
			t.Errorf("the log says:\n%s", log.String())
		}
		a.End()
		<-done
	})
}

// counted returns a counter.
func counted(t *testing.T, from prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}
