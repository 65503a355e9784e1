package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/grpclog"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet"
)

// TestKillAndRestartUnderLoad kills the server with SIGKILL while real grpc-go
// xDS clients send requests, and starts it again on the same state: no request
// fails, the weights are those from before, and versions go on.
func TestKillAndRestartUnderLoad(t *testing.T) {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(new(bytes.Buffer), new(bytes.Buffer), new(bytes.Buffer)))
	zones := []isobar.Locality{isobar.MustLocality("us/a"), isobar.MustLocality("us/b")}
	p := newProcess(t, zones)
	p.start()
	p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
	clients := p.clients(zones[:1], 2)
	var failed, sent atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for i, c := range clients {
		gen := fleet.Poisson{
			Seed: uint64(i), Rate: func(time.Time) float64 { return 60 },
			Send: func(ctx context.Context, _ time.Time) {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
				defer cancel()
				sent.Add(1)
				if _, err := c.Call(ctx); err != nil {
					failed.Add(1)
					t.Logf("a request failed: %v", err)
				}
			},
			Refuse: func(time.Time) { failed.Add(1) },
		}
		load.Go(func() { gen.Run(ctx) })
	}
	// Demand is measured, and the shares of a source stand for three plans.
	before := p.await("steady shares at measured demand", func(v admin.PlanView) bool { return p.steady(v, 100) })

	p.kill()
	calm := sent.Load() + 120 // about a second without a server
	for sent.Load() < calm {
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // real processes: bounded by the load
	}
	p.start()
	after := p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
	if !reflect.DeepEqual(weights(before), weights(after)) {
		t.Errorf("weights before: %v\nafter: %v", weights(before), weights(after))
	}
	if number(t, after.Version) <= number(t, before.Version) {
		t.Errorf("version went from %s to %s", before.Version, after.Version)
	}
	// The clients come back and report; what they are told stays the same.
	later := p.await("reports of all clients", func(v admin.PlanView) bool { return p.steady(v, 100) && v.Services[0].Hold == "" })
	if !reflect.DeepEqual(weights(before), weights(later)) {
		t.Errorf("weights before: %v\nwith reports again: %v", weights(before), weights(later))
	}
	stop()
	load.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d of %d requests failed", failed.Load(), sent.Load())
	}
}

// process is a server in a process of its own, with real backends.
type process struct {
	t        *testing.T
	file     string
	xds, api string
	cmd      *exec.Cmd
	stderr   bytes.Buffer
	last     map[string][]admin.ShareView
	same     int
}

func newProcess(t *testing.T, zones []isobar.Locality) *process {
	t.Helper()
	dir := t.TempDir()
	p := &process{t: t, file: filepath.Join(dir, "isobar.yaml"), xds: freePort(t), api: freePort(t)}
	var c bytes.Buffer
	fmt.Fprintf(&c, "xds: {listen: %q}\nadmin: {listen: %q}\ntick: 1s\nreport_interval: 1s\nstate_dir: %q\n", p.xds, p.api, filepath.Join(dir, "state"))
	fmt.Fprint(&c, "services:\n- name: checkout\n  localities:\n")
	for i, z := range zones {
		b, err := fleet.StartBackend(fleet.BackendOptions{Locality: z, Concurrency: 8, ServiceTime: 5 * time.Millisecond, MaxQueue: 1000, Seed: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Kill)
		// Without declared capacity shares depend on where demand comes from, not
		// on how much it is, so that they stand still under random arrivals:
		// all clients are in one of two zones, which keeps 1.25/2 of it.
		fmt.Fprintf(&c, "  - {locality: %s, endpoints: [%q]}\n", z, b.Address())
	}
	if err := os.WriteFile(p.file, c.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// start runs this test binary as isobar; see TestMain.
func (p *process) start() {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	p.stderr.Reset()
	p.cmd = &exec.Cmd{Path: self, Args: []string{"isobar", "serve", "-c", p.file}, Stderr: &p.stderr}
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
		ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
		defer cancel()
		if err := c.Ready(ctx); err != nil {
			p.t.Fatalf("%v; server says: %s", err, p.stderr.String())
		}
		out = append(out, c)
	}
	return out
}

// await polls the plan until it is as wanted, for at most 40 seconds.
func (p *process) await(what string, ok func(admin.PlanView) bool) admin.PlanView {
	p.t.Helper()
	p.last, p.same = nil, 0
	for range 400 {
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
