//go:build !race

package operators_test

import (
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/operators"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

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
