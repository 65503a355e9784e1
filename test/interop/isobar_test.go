package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// isobar is a server in a process of its own, as one test sees it.
type isobar struct {
	*process

	t *testing.T
}

// process is what the tests of one server share.
type process struct {
	xds, xds2017, rest, api string // addresses
	config                  string // file
	settings                string // in it, before the services
	cmd                     *exec.Cmd
	log                     *testhelp.Log
}

// on is the same server for a test within the test.
func (s *isobar) on(t *testing.T) *isobar {
	t.Helper()
	return &isobar{process: s.process, t: t}
}

// startIsobar serves the services, given as YAML, until the test ends.
func startIsobar(t *testing.T, services string) *isobar {
	t.Helper()
	return startTicking(t, time.Second, services)
}

// startTicking is startIsobar with another time between decisions.
func startTicking(t *testing.T, tick time.Duration, services string) *isobar {
	t.Helper()
	s := prepareIsobar(t, tick, "", services)
	s.run()
	return s
}

// prepareIsobar is startTicking for a server that run starts later. Settings
// of xds, in the flow style of YAML, are added to those of every server.
func prepareIsobar(t *testing.T, tick time.Duration, xds, services string) *isobar {
	t.Helper()
	dir := t.TempDir()
	s := &isobar{t: t, process: &process{
		xds: testhelp.FreePort(t), xds2017: testhelp.FreePort(t), rest: testhelp.FreePort(t), api: testhelp.FreePort(t),
		config: filepath.Join(dir, "isobar.yaml"), log: new(testhelp.Log),
	}}
	s.settings = fmt.Sprintf("xds: {listen: %q, listen_2017: %q, listen_rest: %q%s}\n"+
		"admin: {listen: %q, writable: true}\ntick: %s\nreport_interval: 1s\nstate_dir: %q\n",
		s.xds, s.xds2017, s.rest, xds, s.api, tick, filepath.Join(dir, "state"))
	s.configure(services)
	t.Cleanup(func() {
		if s.cmd != nil {
			s.kill()
		}
		if t.Failed() {
			t.Logf("server: %s", s.log.String())
		}
	})
	return s
}

// configure writes the configuration file with these services. A server that
// runs takes them over by itself.
func (s *isobar) configure(services string) {
	s.t.Helper()
	next := s.config + ".next"
	if err := errors.Join(os.WriteFile(next, []byte(s.settings+services), 0o600), os.Rename(next, s.config)); err != nil {
		s.t.Fatal(err)
	}
}

// run starts the process and waits for its first plan.
func (s *isobar) run() {
	s.t.Helper()
	s.start()
	await(s.t, "plan", func() error {
		_, err := s.plan("")
		return err
	})
}

// start starts the process.
func (s *isobar) start() {
	s.t.Helper()
	s.cmd = exec.CommandContext(context.Background(), isobarPath, "serve", "-c", s.config)
	s.cmd.Stderr = s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// kill ends the process without a chance to save anything.
func (s *isobar) kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Errorf("the server ended on its own: %v", err)
	}
	_ = s.cmd.Wait() // "signal: killed"
}

// plan is what the server has published, of one service or of all.
func (s *isobar) plan(service string) (v admin.PlanView, err error) {
	path := "/v1/plan"
	if service != "" {
		path += "?service=" + service
	}
	err = s.get(path, &v)
	return v, err
}

// source is what the clients in us/a get of a service.
func (s *isobar) source(service string) (admin.ServiceView, admin.SourceView, error) {
	v, err := s.plan(service)
	if err != nil {
		return admin.ServiceView{}, admin.SourceView{}, err
	}
	for _, source := range v.Services[0].Sources {
		if source.Source.String() == "us/a" {
			return v.Services[0], source, nil
		}
	}
	return v.Services[0], admin.SourceView{}, errors.New("no source us/a in the plan")
}

// client finds the one client with the node id.
func (s *isobar) client(id string) (admin.Client, error) {
	var list admin.ClientList
	if err := s.get("/v1/clients", &list); err != nil {
		return admin.Client{}, err
	}
	for _, c := range list.Clients {
		if c.ID == id && len(c.Types) > 0 {
			return c, nil
		}
	}
	return admin.Client{}, fmt.Errorf("no client %s among %d", id, len(list.Clients))
}

// health sets the health of an endpoint; "" takes that back.
func (s *isobar) health(service, address, health string) {
	s.t.Helper()
	method := http.MethodPut
	if health == "" {
		method = http.MethodDelete
	}
	path := "http://" + s.api + "/v1/services/" + service + "/endpoints/" + address + "/health?force=true" // small fleets are full soon
	req, err := http.NewRequestWithContext(s.t.Context(), method, path, strings.NewReader(health))
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%s %s %q: %s", method, path, health, resp.Status)
	}
}

func (s *isobar) get(path string, into any) error {
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.api+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return errors.New(path + ": " + resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// patience only stops a hang: a machine may be busy.
const patience = 90 * time.Second

// await polls until the condition holds; its error says what is missing.
func await(t *testing.T, what string, missing func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err = missing(); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // real processes: bounded polling
	}
	t.Fatalf("no %s within %s: %v", what, patience, err)
}
