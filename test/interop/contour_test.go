package interop

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/testhelp"
)

// contourVersion is that of the command line of Contour, another control plane.
const contourVersion = "v1.33.8"

// watcher is a run of `contour cli eds`, which prints all that it gets.
type watcher struct {
	id     string
	output *testhelp.Log
}

func (w *watcher) responses() int {
	return strings.Count(w.output.String(), "Received Discovery Response")
}

func startWatcher(t *testing.T, xds, id string, flags ...string) *watcher {
	t.Helper()
	path := goTool(t, "github.com/projectcontour/contour/cmd/contour", contourVersion)
	w := &watcher{id: id, output: new(testhelp.Log)}
	args := append([]string{"cli", "eds", "split", "--contour=" + xds, "--node-id=" + id}, flags...)
	cmd := exec.CommandContext(context.Background(), path, args...)
	cmd.Stdout, cmd.Stderr = w.output, w.output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended on its own, which the test has seen
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("contour: %.4000s", w.output.String())
		}
	})
	return w
}

// split is a service with an endpoint in each of two zones, to look at.
const split = `
services:
- name: split
  localities:
  - {locality: us/a, endpoints: ["127.0.0.1:1"]}
  - {locality: us/b, endpoints: ["127.0.0.1:2"]}
`

// TestContour watches endpoints with Contour's command line, by stream and by
// delta, accepting and refusing. It has no locality, and repeats in each answer
// what it subscribes to, which by delta asks for it again.
func TestContour(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"stream", "delta"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			s := startIsobar(t, split)
			var flags []string
			if protocol == "delta" {
				flags = []string{"--delta"}
			}
			name := map[string]string{"stream": contourStream, "delta": contourDelta}[protocol]
			seen.is(name, contourVersion, "v3, EDS "+protocol)
			checkColumn(t, name, healthFilter, func(t *testing.T) {
				t.Helper()
				s.on(t).watchHealth(flags)
			})
			checkColumn(t, name, nack, func(t *testing.T) {
				t.Helper()
				s.on(t).watchRefused(append(flags, "--nack"))
			})
		})
	}
}

// watchHealth: it gets the assignment and each change of it, and acknowledges.
func (s *isobar) watchHealth(flags []string) {
	t := s.t
	w := startWatcher(t, s.xds, "accepting", flags...)
	inSync := func() error {
		c, err := s.client(w.id)
		if err == nil && (!c.InSync || c.Types["eds"].AckedVersion == "") {
			err = fmt.Errorf("not in sync: %+v", c)
		}
		return err
	}
	await(t, "acknowledged assignment", inSync)
	for _, want := range []string{"1", "2"} {
		// Its JSON has spaces at random, so that nobody compares it.
		if !regexp.MustCompile(`"port_value":\s+` + want).MatchString(w.output.String()) {
			t.Errorf("no endpoint with port %s in the assignment", want)
		}
	}
	s.health("split", "127.0.0.1:2", "draining")
	await(t, "endpoint that drains", func() error {
		if !strings.Contains(w.output.String(), "DRAINING") {
			return errors.New("not in the output")
		}
		return inSync()
	})
	quiet(t, w)
}

// watchRefused: what it refuses shows in /v1/clients, and is not sent to it
// again and again.
func (s *isobar) watchRefused(flags []string) {
	t := s.t
	w := startWatcher(t, s.xds, "refusing", flags...)
	await(t, "refusal", func() error {
		c, err := s.client(w.id)
		if err != nil {
			return err
		}
		if n := c.Types["eds"].NACK; n == nil || n.Text != "Told to create a NACK for testing" || c.InSync {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	quiet(t, w)
}

// quiet: what does not change is not sent, but once a second where the client
// asks for it.
func quiet(t *testing.T, w *watcher) {
	t.Helper()
	before := w.responses()
	time.Sleep(2 * time.Second) //nolint:forbidigo // real processes: what comes in two seconds
	if n := w.responses() - before; n > 3 {
		t.Errorf("%d responses in two seconds in which nothing changed", n)
	}
}
