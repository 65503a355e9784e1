package main

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// child is this program, or a part of it, as a process of its own; see
// TestMain.
type child struct {
	t    testing.TB
	name string // of the command that TestMain knows
	env  []string
	args []string

	cmd *exec.Cmd
	log string // file with its standard error
}

// start returns the child's standard output. The child is killed with the test,
// and sees the end of its standard input if the test's process dies.
func (c *child) start() io.Reader {
	c.t.Helper()
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	c.log = filepath.Join(c.t.TempDir(), c.name+".log")
	log, err := os.Create(c.log)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	c.cmd = &exec.Cmd{Path: self, Args: append([]string{c.name}, c.args...), Env: append(os.Environ(), c.env...), Stderr: log}
	if _, err := c.cmd.StdinPipe(); err != nil {
		c.t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		c.kill()
		if text, err := os.ReadFile(c.log); err == nil && c.t.Failed() {
			c.t.Logf("%s %s says:\n%s", c.name, strings.Join(c.args, " "), text)
		}
	})
	return out
}

func (c *child) signal(s os.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Error(err)
	}
}

// kill gives the process no chance to say goodbye. It does nothing for one that
// is dead.
func (c *child) kill() {
	if c.cmd == nil {
		return
	}
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.t.Error(err)
	}
	_ = c.cmd.Wait() // "signal: killed"
	c.cmd = nil
}

// checkerProcess is an `isobar checker`.
type checkerProcess struct {
	*child

	id      string
	zone    isobar.Locality
	metrics string
}

func startChecker(tb testing.TB, server, id, zone string) *checkerProcess {
	tb.Helper()
	c := &checkerProcess{id: id, zone: isobar.MustLocality(zone), metrics: testhelp.FreePort(tb)}
	c.child = &child{t: tb, name: "isobar", args: []string{
		"checker", "--server", server, "--locality", zone, "--node-id", id, "--metrics-listen", c.metrics,
	}}
	c.start()
	return c
}

// endpoints counts what the checker probes now; false if it does not say.
func (c *checkerProcess) endpoints() (int, bool) {
	m, err := metricsOf(c.t, c.metrics)
	n := 0.0
	for name, v := range m {
		if strings.HasPrefix(name, "isobar_checker_endpoints{") {
			n += v
		}
	}
	return int(n), err == nil
}

// metricsOf reads the metrics of a process, by name with labels.
func metricsOf(tb testing.TB, address string) (map[string]float64, error) {
	tb.Helper()
	body, err := get(tb, "http://"+address+"/metrics")
	out := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, " ")
		if i := strings.LastIndexByte(line, ' '); i > 0 {
			name, value = line[:i], line[i+1:]
		}
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil && !strings.HasPrefix(line, "#") {
			out[name] = v
		}
	}
	return out, err
}

func get(tb testing.TB, url string) ([]byte, error) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	return io.ReadAll(resp.Body)
}
