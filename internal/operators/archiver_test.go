package operators_test

import (
	"log/slog"
	"math/rand/v2"
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

// TestArchiverLeavesOutWhatItCannotKeep asserts that a change which no file of the history may
// hold is lost once, and that the history does not count as unsaved: the disk works.
func TestArchiverLeavesOutWhatItCannotKeep(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log, metrics := &testhelp.Log{}, prometheus.NewRegistry()
		a := operators.OpenArchiver(t.TempDir(), slog.New(slog.NewTextHandler(log, nil)), metrics)
		done := make(chan struct{})
		go func() { defer close(done); a.Run() }()
		noise := make([]byte, 48<<20)
		random := rand.New(rand.NewPCG(1, 2))
		for i := range noise {
			noise[i] = byte(' ' + random.IntN(94))
		}
		a.Add(plan.Change{Version: 7, Made: time.Now(), Services: []plan.ServiceChange{{Service: "checkout", Reason: string(noise)}}})
		pass(time.Minute)
		if why := a.Unsaved(); why != "" {
			t.Errorf("not saved: %s", why)
		}
		if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
			t.Errorf("%d errors in the log:\n%s", n, log.String())
		}
		if n := counted(t, metrics, "isobar_history_changes_lost_total"); n != 1 {
			t.Errorf("%g changes are lost, want 1", n)
		}
		a.Add(plan.Change{Version: 8, Made: time.Now()})
		pass(time.Second)
		if marks, err := a.Archive().Marks(""); err != nil || len(marks) != 1 || marks[0].Version != 8 {
			t.Errorf("the history has %+v, %v", marks, err)
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
