// Package replicatest runs groups of replicas as processes: real servers of one group
// behind one address, real gRPC backends and clients under load, and bare streams that
// tell what a client must never see.
package replicatest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// Group is three servers of one group, each a process of its own, behind one
// address, with real backends.
type Group struct {
	t        *testing.T
	Replicas []*Process
	Backends []string // addresses, in the order of the zones
	Services string   // of the configurations, a list in YAML
	dir      string
	front    *fleet.Balancer
	program  string
}

// Options of a Group.
type Options struct {
	Program  string            // path of isobar
	Zones    []isobar.Locality // with one backend each
	Election string            // replicas.election of the configuration, as YAML in one line
	// Etcd has the addresses of etcd's members in place of Election. Every connection
	// between replicas, and to etcd, then goes through a Link of its own.
	Etcd []string
}

// Process is one replica.
type Process struct {
	Name string // as in the configuration
	API  string // address of the admin interface
	// Program is the path of isobar at the next Start; "" = that of the group.
	Program string

	file, xds, peers string

	// Out are the links on which the replica sends to each other one, by name, and
	// Engine those to the members of etcd.
	Out    map[string]*Link
	Engine []*Link

	cmd    *exec.Cmd
	stderr *testhelp.Log
	frozen bool
}

// answers reports whether the process runs.
func (r *Process) answers() bool { return r.cmd != nil && !r.frozen }

// size is how many replicas a group has.
const size = 3

// New writes the configurations, and starts the backends.
func New(t *testing.T, o Options) *Group {
	t.Helper()
	dir := t.TempDir()
	g := &Group{t: t, program: o.Program, dir: dir}
	var services bytes.Buffer
	services.WriteString("- name: checkout\n  localities:\n")
	for i, z := range o.Zones {
		b, err := fleet.StartBackend(fleet.BackendOptions{Locality: z, Concurrency: 8, ServiceTime: 5 * time.Millisecond, MaxQueue: 1000, Seed: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Kill)
		g.Backends = append(g.Backends, b.Address())
		fmt.Fprintf(&services, "  - {locality: %s, endpoints: [%q]}\n", z, b.Address())
	}
	var addresses []string
	for i := range size {
		r := &Process{Name: "isobar-" + strconv.Itoa(i), xds: testhelp.FreePort(t), API: testhelp.FreePort(t), peers: testhelp.FreePort(t)}
		g.Replicas, addresses = append(g.Replicas, r), append(addresses, r.xds)
	}
	for _, r := range g.Replicas {
		election := o.Election
		if len(o.Etcd) > 0 {
			election = g.linked(r, o.Etcd)
		}
		var c bytes.Buffer
		fmt.Fprintf(&c, "xds: {listen: %q}\nadmin: {listen: %q, writable: true}\ntick: 1s\nreport_interval: 1s\nstop_spread: 1s\nstate_dir: %q\n",
			r.xds, r.API, filepath.Join(dir, r.Name))
		fmt.Fprintf(&c, "replicas:\n  group: test\n  name: %s\n  listen: %q\n  election: %s\n  peers:\n", r.Name, r.peers, election)
		for _, p := range g.Replicas {
			address := p.peers
			if l := r.Out[p.Name]; l != nil {
				address = l.Address()
			}
			fmt.Fprintf(&c, "  - {name: %s, address: %q}\n", p.Name, address)
		}
		c.WriteString(servicesBegin)
		c.Write(services.Bytes())
		r.file = filepath.Join(dir, r.Name+".yaml")
		if err := os.WriteFile(r.file, c.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g.Services = services.String()
	var err error
	if g.front, err = fleet.NewBalancer(addresses); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.t = t
		for _, r := range g.Replicas {
			g.Kill(r)
		}
		if err := g.front.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// Within has what fails from now on count for a test within that of New.
func (g *Group) Within(t *testing.T) {
	t.Helper()
	g.t = t
}

// Configure replaces the services of a replica's configuration file, a list in YAML.
func (g *Group) Configure(r *Process, services string) {
	g.t.Helper()
	data, err := os.ReadFile(r.file)
	if err == nil {
		before, _, _ := strings.Cut(string(data), servicesBegin)
		err = os.WriteFile(r.file, []byte(before+servicesBegin+services), 0o600) //nolint:gosec // in the test's own directory
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// servicesBegin begins the last section of a configuration.
const servicesBegin = "services:\n"

// linked makes the links of a replica, and returns its election.
func (g *Group) linked(r *Process, etcd []string) string {
	g.t.Helper()
	link := func(target string) *Link {
		l, err := NewLink(target)
		if err != nil {
			g.t.Fatal(err)
		}
		g.t.Cleanup(func() { _ = l.Close() })
		return l
	}
	r.Out = map[string]*Link{}
	for _, other := range g.Replicas {
		if other != r {
			r.Out[other.Name] = link(other.peers)
		}
	}
	var endpoints []string
	for _, member := range etcd {
		l := link(member)
		r.Engine = append(r.Engine, l)
		endpoints = append(endpoints, strconv.Quote("http://"+l.Address()))
	}
	return "{etcd: {endpoints: [" + strings.Join(endpoints, ", ") + "]}}"
}

// Forget removes what a replica that does not run has on its disk.
func (g *Group) Forget(r *Process) {
	g.t.Helper()
	if err := os.RemoveAll(filepath.Join(g.dir, r.Name)); err != nil {
		g.t.Fatal(err)
	}
}

// Front returns the address that clients have for all replicas.
func (g *Group) Front() string { return g.front.Address() }

// Direct has new connections of clients go to these replicas only.
func (g *Group) Direct(to ...*Process) {
	addresses := make([]string, len(to))
	for i, r := range to {
		addresses[i] = r.xds
	}
	g.front.Serve(addresses)
}

// Runs reports whether the replica's process was started and not ended.
func (r *Process) Runs() bool { return r.cmd != nil }

// Start runs the replica.
func (g *Group) Start(r *Process) {
	g.t.Helper()
	r.stderr = new(testhelp.Log)
	r.cmd = &exec.Cmd{Path: cmp.Or(r.Program, g.program), Args: []string{"isobar", "serve", "-c", r.file}, Stderr: r.stderr}
	if err := r.cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
}

// Kill ends the replica with SIGKILL: it gives the process no chance to save anything.
func (g *Group) Kill(r *Process) {
	if r.cmd == nil {
		return
	}
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		g.t.Error(err)
	}
	_ = r.cmd.Wait() // "signal: killed"
	r.cmd = nil
}

// Freeze stops the process without ending it, and Thaw has it go on.
func (g *Group) Freeze(r *Process) { g.signal(r, syscall.SIGSTOP) }

// Thaw ends what Freeze began.
func (g *Group) Thaw(r *Process) { g.signal(r, syscall.SIGCONT) }

func (g *Group) signal(r *Process, s syscall.Signal) {
	g.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		g.t.Fatal(err)
	}
	r.frozen = s == syscall.SIGSTOP
}

// Stop has the process end in order.
func (g *Group) Stop(r *Process) {
	g.t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		g.t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		g.t.Errorf("%s: %v; it says: %s", r.Name, err, r.stderr.String())
	}
	r.cmd = nil
}

// Get reads a path of the admin API.
func (r *Process) Get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.API+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// Await polls until ok is true, for at most two minutes.
func (g *Group) Await(what string, ok func() bool) {
	g.t.Helper()
	for began := time.Now(); time.Since(began) < 2*time.Minute; {
		if ok() {
			return
		}
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // real processes: bounded polling
	}
	for _, r := range g.Replicas {
		if r.stderr != nil {
			g.t.Logf("%s says: %s", r.Name, r.stderr.String())
		}
	}
	g.t.Fatalf("no %s", what)
}

// CPU returns the processor time that replicas have taken since they started.
func (g *Group) CPU(of ...*Process) (total time.Duration) {
	g.t.Helper()
	for _, r := range of {
		seconds, err := r.metric(g.t.Context(), "process_cpu_seconds_total")
		if err != nil {
			g.t.Fatal(err)
		}
		total += time.Duration(seconds * float64(time.Second))
	}
	return total
}

// metric reads a metric without labels.
func (r *Process) metric(ctx context.Context, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.API+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("%s has no metric %s", r.Name, name)
}

// Leader awaits that all living replicas name the same leader, and serve its plans.
func (g *Group) Leader() (leader *Process, version uint64) {
	g.t.Helper()
	g.Await("leader that all replicas follow", func() bool {
		name := ""
		version = 0
		for _, r := range g.Replicas {
			if !r.answers() {
				continue
			}
			var s admin.ReplicaGroup
			n := r.Version(g.t.Context())
			if r.Get(g.t.Context(), "/v1/replicas", &s) != nil || s.Leader == "" || name != "" && s.Leader != name || n == 0 {
				return false
			}
			name, version = s.Leader, max(version, n)
		}
		for _, r := range g.Replicas {
			if r.Name == name && r.answers() {
				leader = r
				return true
			}
		}
		return false
	})
	return leader, version
}

// AwaitVersion awaits that all living replicas serve a version above the given one,
// and returns how long that took.
func (g *Group) AwaitVersion(above uint64) time.Duration {
	g.t.Helper()
	began := time.Now()
	g.Await(fmt.Sprintf("version above %d on all replicas", above), func() bool {
		for _, r := range g.Replicas {
			if r.answers() && r.Version(g.t.Context()) <= above {
				return false
			}
		}
		return true
	})
	return time.Since(began)
}

// Version returns the version that the replica serves; 0 where it does not answer.
func (r *Process) Version(ctx context.Context) uint64 {
	var v admin.PlanView
	if r.Get(ctx, "/v1/plan", &v) != nil {
		return 0
	}
	n, err := strconv.ParseUint(v.Version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
