package envoyloop

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
	"strings"
	"syscall"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
)

// Server is `isobar serve` in a process of its own.
type Server struct {
	XDS   string // address that clients connect to
	Admin string // address of the admin interface

	path, file string
	log        io.Writer
	cmd        *exec.Cmd
	ended      chan struct{}
	client     http.Client
}

// ServerOptions are what a server is started with.
type ServerOptions struct {
	Path           string        // of the binary
	Dir            string        // an existing directory for its files
	Log            io.Writer     // its log; nil discards it
	Tick           time.Duration // between decisions, and of load reports
	ReportInterval time.Duration
	Services       string // the rest of the configuration, YAML
}

// StartServer runs a server until it is stopped, and waits for its first plan.
func StartServer(ctx context.Context, o *ServerOptions) (*Server, error) {
	s := &Server{path: o.Path, file: filepath.Join(o.Dir, "isobar.yaml"), log: o.Log, client: http.Client{Timeout: 10 * time.Second}}
	for _, into := range []*string{&s.XDS, &s.Admin} {
		var err error
		if *into, err = freeAddress(); err != nil {
			return nil, err
		}
	}
	text := fmt.Sprintf("xds: {listen: %q}\nadmin: {listen: %q, writable: true}\nstate_dir: %q\ntick: %s\nreport_interval: %s\n",
		s.XDS, s.Admin, filepath.Join(o.Dir, "state"), o.Tick, o.ReportInterval) + "stop_spread: 0s\nlog: {level: warn}\n" + o.Services
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return s, s.Start(ctx)
}

// Start runs the process, again after a Kill, and waits for its first plan.
func (s *Server) Start(ctx context.Context) error {
	s.cmd = exec.Command(s.path, "serve", "-c", s.file) //nolint:gosec,noctx // the caller chooses the binary; Stop and Kill end it
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait()
		close(ended)
	}(s.cmd, s.ended)
	err := poll(ctx, 30*time.Second, s.ended, func() error {
		_, err := s.Plan(ctx)
		return err
	})
	if err != nil {
		s.Kill()
		return fmt.Errorf("%s serve: %w", s.path, err)
	}
	return nil
}

// Kill ends the process without a chance to save anything.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// Stop ends the process as an operator does, after 10 seconds by force.
func (s *Server) Stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(10 * time.Second):
		s.Kill()
	}
}

// PID is the id of the process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Status is what `isobar status` shows.
func (s *Server) Status(ctx context.Context) (v admin.Status, err error) {
	return v, s.get(ctx, "/v1/status", &v)
}

// Plan is the published plan.
func (s *Server) Plan(ctx context.Context) (v admin.PlanView, err error) {
	return v, s.get(ctx, "/v1/plan", &v)
}

func (s *Server) get(ctx context.Context, path string, into any) error {
	body, err := s.Do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// Do sends a request with a JSON body to the admin interface and returns the
// body of the response; a status of 400 or more is an error.
func (s *Server) Do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.Admin+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %s: %.500s", method, path, resp.Status, data)
	}
	return data, err
}

// Bootstrap is what `isobar bootstrap envoy` prints for a client of the server.
func (s *Server) Bootstrap(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.path, append([]string{"bootstrap", "envoy", "--server", s.XDS}, args...)...) //nolint:gosec // the caller chooses the binary
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w: %s", cmd.Args, err, stderr.String())
	}
	return string(out), nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // listening on loopback does not wait
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// poll calls a function until it succeeds, the limit passes or a process ends.
func poll(ctx context.Context, limit time.Duration, ended <-chan struct{}, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ended:
			return errors.Join(errors.New("the process ended"), err)
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", limit, err)
		}
	}
}
