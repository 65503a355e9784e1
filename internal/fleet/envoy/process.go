package envoy

import (
	"bytes"
	"context"
	"encoding/json"
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

// Config says how to start an Envoy.
type Config struct {
	Path        string    // the binary
	Bootstrap   []byte    // YAML; Start adds an admin listener on a free port of loopback
	Merge       []byte    // YAML of top-level fields that Envoy merges into the bootstrap, as Istio's bootstrap override; without admin
	Dir         string    // an existing directory for the files of this process
	Log         io.Writer // Envoy's log; nil discards it
	LogLevel    string    // default "warning"
	Concurrency int       // worker threads, default 1
	OpenFiles   int       // limit of open files (RLIMIT_NOFILE); 0 keeps the limit of the parent
	Args        []string  // further arguments
}

// Process is a running Envoy.
type Process struct {
	cmd    *exec.Cmd
	admin  string // host:port
	exited chan struct{}
	err    error // of the exit, valid once exited is closed
	client http.Client
}

// Start runs an Envoy and waits until its admin interface answers, which is
// before the Envoy has its first configuration: see AwaitReady.
func Start(ctx context.Context, c Config) (*Process, error) {
	file, err := os.CreateTemp(c.Dir, "bootstrap-*.yaml")
	if err != nil {
		return nil, err
	}
	_, err = file.Write(c.Bootstrap)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	adminFile := strings.TrimSuffix(file.Name(), filepath.Ext(file.Name())) + ".admin"
	args := append([]string{
		"-c", file.Name(), "--disable-hot-restart",
		"--config-yaml", string(c.Merge) + "\nadmin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}",
		"--admin-address-path", adminFile,
		"--concurrency", strconv.Itoa(max(1, c.Concurrency)),
		"--log-level", orDefault(c.LogLevel, "warning"),
		"--drain-time-s", "1", "--parent-shutdown-time-s", "2",
	}, c.Args...)
	name := c.Path
	if c.OpenFiles > 0 { // the shell sets its own limit and becomes the Envoy
		args = append([]string{"-c", `ulimit -n "$0" && exec "$@"`, strconv.Itoa(c.OpenFiles), c.Path}, args...)
		name = "sh"
	}
	p := &Process{cmd: exec.Command(name, args...), exited: make(chan struct{})} //nolint:gosec,noctx // the caller chooses the binary and ends the process
	p.client.Timeout = 10 * time.Second
	p.cmd.Stdout, p.cmd.Stderr = c.Log, c.Log
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	err = p.poll(ctx, 30*time.Second, func() error {
		text, err := os.ReadFile(adminFile) //nolint:gosec // a file of ours
		if err != nil {
			return err
		}
		if _, _, err := net.SplitHostPort(string(text)); err != nil {
			return err
		}
		p.admin = string(text)
		_, err = p.Get(ctx, "/server_info")
		return err
	})
	if err != nil {
		p.Kill()
		return nil, fmt.Errorf("Envoy with %s: %w", file.Name(), err) //nolint:staticcheck // a name
	}
	return p, nil
}

// AwaitReady waits until Envoy has its first configuration and accepts connections.
func (p *Process) AwaitReady(ctx context.Context, limit time.Duration) error {
	return p.poll(ctx, limit, func() error {
		_, err := p.Get(ctx, "/ready")
		return err
	})
}

// poll calls a function until it succeeds, the limit passes or Envoy ends.
func (p *Process) poll(ctx context.Context, limit time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-p.exited:
			return fmt.Errorf("Envoy ended: %w", errors.Join(p.err, err)) //nolint:staticcheck // a name
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", limit, err)
		}
	}
}

// Admin is the address of the admin interface.
func (p *Process) Admin() string { return p.admin }

// PID is the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Get returns the body of a page of the admin interface, such as /clusters.
func (p *Process) Get(ctx context.Context, page string) ([]byte, error) {
	return p.do(ctx, http.MethodGet, page)
}

// Post does what a page of the admin interface does, such as /reset_counters.
func (p *Process) Post(ctx context.Context, page string) ([]byte, error) {
	return p.do(ctx, http.MethodPost, page)
}

func (p *Process) do(ctx context.Context, method, page string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.admin+page, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, page, resp.Status, bytes.TrimSpace(body))
	}
	return body, err
}

// Stats returns the counters and gauges whose names match a regular expression.
func (p *Process) Stats(ctx context.Context, filter string) (map[string]int64, error) {
	body, err := p.Get(ctx, "/stats?format=json&filter="+filter)
	if err != nil {
		return nil, err
	}
	var all struct {
		Stats []struct {
			Name  string           `json:"name"`
			Value *json.RawMessage `json:"value"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, err
	}
	stats := map[string]int64{}
	for _, s := range all.Stats {
		if s.Value == nil {
			continue // histograms
		}
		if n, err := strconv.ParseInt(string(*s.Value), 10, 64); err == nil {
			stats[s.Name] = n
		}
	}
	return stats, nil
}

// Listener returns the address of a listener of the name, also where its port was 0.
func (p *Process) Listener(ctx context.Context, name string) (string, error) {
	body, err := p.Get(ctx, "/listeners")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(body)) {
		if at, found := strings.CutPrefix(strings.TrimSpace(line), name+"::"); found {
			return at, nil
		}
	}
	return "", fmt.Errorf("no listener %s in %q", name, body)
}

// Exited is closed once the process has ended, for whatever reason.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Err is how the process ended; call it after Exited is closed.
func (p *Process) Err() error { return p.err }

// Stop ends the process as an operator does, after 10 seconds by force.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
		p.Kill()
	}
}

// Kill ends the process at once, as a crash does.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
