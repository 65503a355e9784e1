package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// process is a server in a process of its own, with real backends.
type process struct {
	t        testing.TB
	file     string
	xds, api string
	places   map[string]isobar.Locality // of the backends, by address
	cmd      *exec.Cmd
	stderr   *testhelp.Log
	last     map[string][]admin.ShareView
	same     int
}

// newProcess writes the configuration of a service with one real backend in
// each zone. rates are those of the zones, requests/s; nil = not declared.
// extra is YAML within the service.
func newProcess(t *testing.T, extra string, zones []isobar.Locality, rates []int) *process {
	t.Helper()
	dir := t.TempDir()
	p := &process{t: t, file: filepath.Join(dir, "isobar.yaml"), xds: testhelp.FreePort(t), api: testhelp.FreePort(t), places: map[string]isobar.Locality{}}
	var c bytes.Buffer
	fmt.Fprintf(&c, "xds: {listen: %q}\nadmin: {listen: %q}\ntick: 1s\nreport_interval: 1s\nstate_dir: %q\n", p.xds, p.api, filepath.Join(dir, "state"))
	fmt.Fprintf(&c, "services:\n- name: checkout\n%s  localities:\n", extra)
	for i, z := range zones {
		b, err := fleet.StartBackend(fleet.BackendOptions{Locality: z, Concurrency: 8, ServiceTime: 5 * time.Millisecond, MaxQueue: 1000, Seed: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Kill)
		p.places[b.Address()] = z
		rate := ""
		if rates != nil {
			rate = fmt.Sprintf("max_rate: %d, ", rates[i])
		}
		fmt.Fprintf(&c, "  - {locality: %s, %sendpoints: [%q]}\n", z, rate, b.Address())
	}
	if err := os.WriteFile(p.file, c.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// start runs this test binary as isobar; see TestMain.
func (p *process) start() {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	p.stderr = new(testhelp.Log)
	p.cmd = &exec.Cmd{Path: self, Args: []string{"isobar", "serve", "-c", p.file}, Stderr: p.stderr}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// kill gives the process no chance to save anything.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Error(err)
	}
	_ = p.cmd.Wait() // "signal: killed"
	p.cmd = nil
}

func (p *process) clients(zones []isobar.Locality, each int) []*fleet.Client {
	p.t.Helper()
	var out []*fleet.Client
	for i := range each * len(zones) {
		z := zones[i/each]
		c, err := fleet.NewClient(fleet.ClientOptions{
			ID: "client-" + strconv.Itoa(i), Cluster: "web", Locality: z, Server: p.xds, Service: "checkout",
		})
		if err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() { _ = c.Close() })
		ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
		defer cancel()
		if err := c.Ready(ctx); err != nil {
			p.t.Fatalf("%v; server says: %s", err, p.stderr.String())
		}
		out = append(out, c)
	}
	return out
}

// await polls the plan until it is as wanted, for at most two minutes.
func (p *process) await(what string, ok func(admin.PlanView) bool) admin.PlanView {
	p.t.Helper()
	p.last, p.same = nil, 0
	for began := time.Now(); time.Since(began) < 2*time.Minute; {
		if v, err := p.plan(); err == nil && ok(v) {
			return v
		}
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // real processes: bounded polling
	}
	v, err := p.plan()
	p.t.Fatalf("no %s; last plan %+v, %v; server says: %s", what, v, err, p.stderr.String())
	return admin.PlanView{}
}

func (p *process) plan() (admin.PlanView, error) {
	var v admin.PlanView
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.api+"/v1/plan", nil)
	if err != nil {
		return v, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return v, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return v, errors.New(resp.Status)
	}
	return v, json.NewDecoder(resp.Body).Decode(&v)
}

// steady tells whether every source is measured at the rate or more, and the
// published shares stood still for some polls.
func (p *process) steady(v admin.PlanView, rate float64) bool {
	for _, s := range v.Services[0].Sources {
		if s.Demand < rate {
			return false
		}
	}
	w := weights(v)
	if len(w["us/a"]) == 2 && reflect.DeepEqual(w, p.last) {
		p.same++
	} else {
		p.same = 0
	}
	p.last = w
	return p.same > 30
}

// weights are the published shares by source.
func weights(v admin.PlanView) map[string][]admin.ShareView {
	out := map[string][]admin.ShareView{}
	for _, s := range v.Services[0].Sources {
		for _, share := range s.Shares {
			if share.Published > 0 {
				out[s.Source.String()] = append(out[s.Source.String()], admin.ShareView{Locality: share.Locality, Published: share.Published})
			}
		}
	}
	return out
}

func number(t *testing.T, version string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
