package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a real `isobar serve` in a process of its own.
type server struct {
	xds, admin string
	dir        string
	cmd        *exec.Cmd
	ended      chan error
	heap       *collections
}

// configuration of the server: defaults, but for what a test has to set.
const configuration = `
xds: {listen: %q}
admin: {listen: %q, writable: true}
state_dir: %q
report_interval: %v
tick: %v
stop_spread: 0s
log: {level: warn}
network:
  latency_ms:
    - {from: region-0, to: region-1, ms: 20}
    - {from: region-0, to: region-2, ms: 60}
    - {from: region-0, to: region-3, ms: 90}
    - {from: region-1, to: region-2, ms: 40}
    - {from: region-1, to: region-3, ms: 70}
    - {from: region-2, to: region-3, ms: 30}
services: []
`

// startPatience is how long the server may take to answer.
const startPatience = 30 * time.Second

func startServer(ctx context.Context, binary string, stderr io.Writer) (_ *server, err error) {
	s := &server{ended: make(chan error, 1), heap: &collections{rest: stderr}}
	if s.dir, err = os.MkdirTemp("", "isobar-steady-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.xds, err = freeAddress(ctx); err != nil {
		return nil, err
	}
	if s.admin, err = freeAddress(ctx); err != nil {
		return nil, err
	}
	file := filepath.Join(s.dir, "isobar.yaml")
	text := fmt.Sprintf(configuration, s.xds, s.admin, filepath.Join(s.dir, "state"), interval, interval)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, "serve", "-c", file) //nolint:noctx,gosec // what the user named; stop ends it, in order
	cmd.Stdout, cmd.Stderr = stderr, s.heap
	cmd.Env = append(os.Environ(), traced)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.cmd = cmd
	go func() { s.ended <- cmd.Wait() }()
	return s, s.await(ctx)
}

func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// await returns when the server answers operators.
func (s *server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		if _, err := s.get(ctx, "/livez"); err == nil {
			return nil
		}
		select {
		case err := <-s.ended:
			s.ended <- err
			return fmt.Errorf("the server ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stop ends the server and removes its state.
func (s *server) stop() error {
	var err error
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		err = <-s.ended
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// attempts is how often a question is asked whose connection ends unanswered.
const attempts = 3

// get asks the admin interface. Where this process is short of time its request
// can come so late that the server no longer waits for it.
func (s *server) get(ctx context.Context, path string) (data []byte, err error) {
	for range attempts {
		data, err = s.do(ctx, http.MethodGet, path, nil)
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			break
		}
	}
	return data, err
}

func (s *server) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.admin+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %s: %.500s", method, path, resp.Status, data)
	}
	return data, err
}

// counter gives a metric of the server, summed over its labels.
func (s *server) counter(ctx context.Context, name string) (float64, error) {
	data, err := s.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(string(data)) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if family, _, _ := strings.Cut(series, "{"); !ok || family != name {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		sum += v
	}
	return sum, nil
}

// usage is what the server process has used.
type usage struct {
	at  time.Time
	cpu time.Duration // user and system
	rss int64         // bytes
}

// clockTick is the unit of times in /proc, which is 10 ms on Linux.
const clockTick = 10 * time.Millisecond

func (s *server) usage() (u usage, err error) {
	u.at = time.Now()
	dir := filepath.Join("/proc", strconv.Itoa(s.cmd.Process.Pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat")) //nolint:gosec // of our own child
	if err != nil {
		return u, err
	}
	// The name, in parentheses, may hold spaces; what follows begins with field 3.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 22 {
		return u, errors.New("/proc/PID/stat can't be read")
	}
	for _, i := range []int{14, 15} { // utime, stime
		n, err := strconv.ParseInt(fields[i-3], 10, 64)
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(n) * clockTick
	}
	pages, err := strconv.ParseInt(fields[24-3], 10, 64)
	u.rss = pages * int64(os.Getpagesize())
	return u, err
}

// mostResident is the most memory that the process ever had resident, bytes.
func (s *server) mostResident() (int64, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.cmd.Process.Pid), "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, errors.New("/proc/PID/status has no VmHWM")
}
