package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestHangupDoesNotEndTheServer: a terminal that is closed, and an operator who
// expects it to read its files again, send the same signal.
func TestHangupDoesNotEndTheServer(t *testing.T) {
	p := newProcess(t, "", []isobar.Locality{isobar.MustLocality("us/a")}, nil)
	p.start()
	p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
	for n := range 3 {
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		testhelp.Eventually(t, "the signal is told of", func() bool { return strings.Count(p.stderr.String(), "asked by SIGHUP") > n })
	}
	if _, err := p.plan(); err != nil {
		t.Error(err)
	}
}
