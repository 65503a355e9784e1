package process

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

// Isobar is a real `isobar serve` in a process of its own.
type Isobar struct {
	XDS, Admin string // addresses

	dir   string
	cmd   *exec.Cmd
	ended chan error
}

// IsobarOptions says what to start.
type IsobarOptions struct {
	Binary string
	// Config is YAML that is added to the listeners, the state directory and
	// what makes the server stop at once.
	Config string
	XDS    string   // YAML that is added to the section xds, such as ", max_streams: 10"
	Env    []string // added to that of this process
	CPU    string   // the processors that it may use, as taskset writes them; empty: those of this process
	Stdout io.Writer
	Stderr io.Writer
}

const listeners = `
xds: {listen: %q%s}
admin: {listen: %q, writable: true}
state_dir: %q
stop_spread: 0s
log: {level: warn}
`

// startPatience is how long the server may take to answer.
const startPatience = 30 * time.Second

// StartIsobar starts a server and waits until it answers operators.
func StartIsobar(ctx context.Context, o IsobarOptions) (_ *Isobar, err error) {
	s := &Isobar{ended: make(chan error, 1)}
	if s.dir, err = os.MkdirTemp("", "isobar-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	for _, address := range []*string{&s.XDS, &s.Admin} {
		if *address, err = FreeAddress(ctx); err != nil {
			return nil, err
		}
	}
	file := filepath.Join(s.dir, "isobar.yaml")
	text := fmt.Sprintf(listeners, s.XDS, o.XDS, s.Admin, filepath.Join(s.dir, "state")) + o.Config
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	args := []string{o.Binary, "serve", "-c", file}
	if o.CPU != "" {
		args = append([]string{"taskset", "--cpu-list", o.CPU}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx,gosec // what the user named; Stop ends it, in order
	cmd.Stdout, cmd.Stderr = o.Stdout, o.Stderr
	cmd.Env = append(os.Environ(), o.Env...)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.cmd = cmd
	go func() { s.ended <- cmd.Wait() }()
	return s, s.await(ctx)
}

// FreeAddress returns an address of the loopback interface that was free a moment ago.
func FreeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (s *Isobar) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		if _, err := s.Get(ctx, "/livez"); err == nil {
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

// PID is the number of the process.
func (s *Isobar) PID() int { return s.cmd.Process.Pid }

// Stop ends the server and removes its state.
func (s *Isobar) Stop() error {
	var err error
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		err = <-s.ended
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// attempts is how often a question is asked whose connection ends unanswered.
const attempts = 3

// Get asks the admin interface. Where this process is short of time its request
// can come so late that the server no longer waits for it.
func (s *Isobar) Get(ctx context.Context, path string) (data []byte, err error) {
	for range attempts {
		data, err = s.Do(ctx, http.MethodGet, path, nil)
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			break
		}
	}
	return data, err
}

// Do sends a request to the admin interface; a body is JSON.
func (s *Isobar) Do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.Admin+path, bytes.NewReader(body))
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

// Counter returns a metric of the server, summed over its labels.
func (s *Isobar) Counter(ctx context.Context, name string) (float64, error) {
	data, err := s.Get(ctx, "/metrics")
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
