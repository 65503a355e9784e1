package main

import (
	"bytes"
	"os"
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
		testhelp.Eventually(t, "the log line of the signal", func() bool { return strings.Count(p.stderr.String(), "received SIGHUP") > n })
	}
	if _, err := p.plan(); err != nil {
		t.Error(err)
	}
}

// TestHangupWhileTheServerStarts: who has it read its files again just after it
// was started does not end it either. Its configuration comes by a pipe here, so
// that it is still reading that.
func TestHangupWhileTheServerStarts(t *testing.T) {
	p := newProcess(t, "", []isobar.Locality{isobar.MustLocality("us/a")}, nil)
	configuration, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(p.file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(p.file, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(p.file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.start()
	if _, err := pipe.Write(bytes.Repeat([]byte("#\n"), 100_000)); err != nil { // more than a pipe holds: a part was read
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if _, err := pipe.Write(configuration); err != nil {
		t.Fatal(err)
	}
	if err := pipe.Close(); err != nil {
		t.Fatal(err)
	}
	p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
	testhelp.Eventually(t, "the log line of the signal", func() bool { return strings.Contains(p.stderr.String(), "received SIGHUP") })
}
