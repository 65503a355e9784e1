package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
)

// ReplicaOptions tell how to run a group of replicas.
type ReplicaOptions struct {
	Program string // path of isobar
	Count   int    // of replicas, 2 to 9
}

// replicaGroup is a group of servers behind one address, each a process of its own, on
// this machine: the engine is a lock file, so nothing has to be set up.
type replicaGroup struct {
	program  string
	dir      string
	front    *Balancer
	replicas []*replicaProcess

	watch   sync.WaitGroup
	marking sync.WaitGroup

	mu       sync.Mutex
	takeover *TakeoverOutcome
}

// replicaProcess is one replica.
type replicaProcess struct {
	name   string
	file   string // the configuration
	api    string // address of the admin interface
	remote *admin.Remote
	cmd    *exec.Cmd
	ended  chan struct{} // closed once cmd has ended
}

// TakeoverOutcome is what followed when the leader of a group of replicas was killed.
type TakeoverOutcome struct {
	Leader    string  `json:"leader"`              // that was killed
	Successor string  `json:"successor,omitempty"` // missing where none led in time
	Seconds   float64 `json:"seconds"`             // until all others served the first plan of the successor; 0 = not in time
	Version   uint64  `json:"version"`             // the highest that the killed leader published
	Next      uint64  `json:"next_version"`        // the first of the successor
	Failed    uint64  `json:"failed"`              // requests that were due in the 10 s after the kill, and failed
	Requests  uint64  `json:"requests"`            // that were due in those
}

const (
	// takeoverSpan is how long after the kill requests belong to the takeover, and how
	// long the next plan may take.
	takeoverSpan = 10 * time.Second
	// nextBlock is how far above a version each version of the next leader is, at least.
	nextBlock = 900_000
	// replicaPatience bounds the start and the end of the group.
	replicaPatience = 30 * time.Second
)

// ServeReplicas returns what starts a group of replicas for a demo.
func ServeReplicas(o ReplicaOptions) StartManagement {
	return func(ctx context.Context, topology *isobar.Topology, s *Scenario) (m Management, err error) {
		g := &replicaGroup{program: o.Program}
		defer func() {
			if err != nil {
				m, err = nil, errors.Join(err, g.Stop())
			}
		}()
		if g.dir, err = os.MkdirTemp("", "isobar-demo-"); err != nil {
			return nil, err
		}
		if err := g.configure(o.Count, topology, s); err != nil {
			return nil, err
		}
		for _, r := range g.replicas {
			if err := g.start(r); err != nil {
				return nil, err
			}
		}
		_, _, err = g.awaitLeader(ctx)
		return g, err
	}
}

// configure writes the configuration of each replica.
func (g *replicaGroup) configure(count int, topology *isobar.Topology, s *Scenario) error {
	ports, err := freePorts(3 * count)
	if err != nil {
		return err
	}
	type object = map[string]any
	peers := make([]object, count)
	addresses := make([]string, count)
	for i := range count {
		r := &replicaProcess{name: "isobar-" + strconv.Itoa(i), api: ports[3*i+1]}
		r.file = filepath.Join(g.dir, r.name+".yaml")
		if r.remote, err = admin.NewRemote(r.api); err != nil {
			return err
		}
		g.replicas = append(g.replicas, r)
		addresses[i], peers[i] = ports[3*i], object{"name": r.name, "address": ports[3*i+2]}
	}
	for i, r := range g.replicas {
		data, err := json.Marshal(object{ // JSON is YAML
			"xds": object{"listen": addresses[i]}, "admin": object{"listen": r.api, "writable": true},
			"state_dir": filepath.Join(g.dir, r.name), "stop_spread": "0s",
			"tick": s.Interval.String(), "report_interval": s.Interval.String(),
			"replicas": object{
				"group": "demo", "name": r.name, "listen": ports[3*i+2], "peers": peers,
				"election": object{"file": filepath.Join(g.dir, "election")},
			},
			"network": object{"latency_ms": topology.Network.Rules()}, "services": topology.Services,
		})
		if err != nil {
			return err
		}
		if err := os.WriteFile(r.file, data, 0o600); err != nil {
			return err
		}
	}
	g.front, err = NewBalancer(addresses)
	return err
}

// freePorts returns addresses of the loopback interface that were free a moment ago.
func freePorts(n int) ([]string, error) {
	var lc net.ListenConfig
	out := make([]string, n)
	for i := range out {
		l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // nobody connected
		out[i] = l.Addr().String()
	}
	return out, nil
}

func (g *replicaGroup) start(r *replicaProcess) error {
	log, err := os.Create(r.file + ".log")
	if err != nil {
		return err
	}
	r.cmd = &exec.Cmd{Path: g.program, Args: []string{"isobar", "serve", "-c", r.file}, Stdout: log, Stderr: log}
	err = r.cmd.Start()
	if closed := log.Close(); err != nil || closed != nil { // the process has its own
		r.cmd = nil
		return errors.Join(err, closed)
	}
	r.ended = make(chan struct{})
	go func() {
		_ = r.cmd.Wait() // the code that ends it knows why
		close(r.ended)
	}()
	return nil
}

// runs reports whether the process has not ended.
func (r *replicaProcess) runs() bool {
	if r.cmd == nil {
		return false
	}
	select {
	case <-r.ended:
		return false
	default:
		return true
	}
}

// leader returns the leader that all running replicas name, and the highest version
// that they serve; nil where they don't agree, or where one has no plan.
func (g *replicaGroup) leader(ctx context.Context) (leader *replicaProcess, version uint64) {
	for _, r := range g.replicas {
		if !r.runs() {
			continue
		}
		state, err := r.remote.Replicas(ctx)
		if err != nil || state.Leader == "" || leader != nil && state.Leader != leader.name {
			return nil, 0
		}
		for i := range state.Replicas {
			if m := &state.Replicas[i]; m.Name == r.name {
				if m.Plan == 0 {
					return nil, 0
				}
				version = max(version, m.Plan)
			}
		}
		for _, other := range g.replicas {
			if other.name == state.Leader {
				leader = other
			}
		}
	}
	if leader != nil && !leader.runs() {
		return nil, 0
	}
	return leader, version
}

// awaitLeader waits until all running replicas follow one leader.
func (g *replicaGroup) awaitLeader(ctx context.Context) (*replicaProcess, uint64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, replicaPatience, errors.New("no replica leads the group"))
	defer cancel()
	for {
		if leader, version := g.leader(ctx); leader != nil {
			return leader, version, nil
		}
		for _, r := range g.replicas {
			if !r.runs() {
				log, _ := os.ReadFile(r.file + ".log") // what it said is a help only
				return nil, 0, fmt.Errorf("replica %s ended: %s", r.name, lastLines(string(log), 3))
			}
		}
		if err := waitUntil(ctx, time.Now().Add(50*time.Millisecond)); err != nil {
			return nil, 0, context.Cause(ctx)
		}
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}

// killLeader kills the leader as a crash does, and watches how another replica takes
// over.
func (g *replicaGroup) killLeader(ctx context.Context) {
	leader, version := g.leader(ctx)
	out := &TakeoverOutcome{Version: version}
	g.mu.Lock()
	g.takeover = out
	g.mu.Unlock()
	if leader == nil {
		return
	}
	out.Leader = leader.name
	began := time.Now()
	_ = leader.cmd.Process.Kill() // if it has ended by itself, the others take over, too
	<-leader.ended
	g.watch.Go(func() { g.watchTakeover(ctx, out, began) })
}

// Mark marks the present moment in the charts of all replicas.
func (g *replicaGroup) Mark(text string) {
	o := admin.MarkRequest{Text: text, At: time.Now(), Who: "demo"}
	g.marking.Go(func() { g.markAll(o) })
}

// markAll marks a moment until all replicas that run have it. The leader may be killed
// before its next plan brings the mark to the others.
func (g *replicaGroup) markAll(o admin.MarkRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), takeoverSpan)
	defer cancel()
	for all := false; !all && ctx.Err() == nil; {
		all = true
		for _, r := range g.replicas {
			if !r.runs() {
				continue
			}
			list, err := r.remote.Marks(ctx)
			if err == nil && slices.ContainsFunc(list.Marks, func(m admin.SampleMark) bool {
				return m.Text == o.Text && m.At.Sub(o.At).Abs() < time.Second
			}) {
				continue
			}
			all = false
			_, _ = r.remote.Mark(ctx, o) // the next look tells whether it came
			break
		}
		if !all {
			_ = waitUntil(ctx, time.Now().Add(200*time.Millisecond)) // the loop looks at ctx
		}
	}
}

func (g *replicaGroup) watchTakeover(ctx context.Context, out *TakeoverOutcome, began time.Time) {
	for time.Since(began) < takeoverSpan && ctx.Err() == nil {
		if next, version := g.leader(ctx); next != nil && version >= out.Version+nextBlock {
			g.mu.Lock()
			out.Successor, out.Next, out.Seconds = next.name, version, time.Since(began).Seconds()
			g.mu.Unlock()
			return
		}
		_ = waitUntil(ctx, time.Now().Add(20*time.Millisecond)) // the loop looks at ctx
	}
}

// taken returns what followed the kill; nil where there was none.
func (g *replicaGroup) taken() *TakeoverOutcome {
	g.watch.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.takeover
}

// XDSAddress implements [Management].
func (g *replicaGroup) XDSAddress() string { return g.front.Address() }

// AdminAddress implements [Management]: that of a replica which runs.
func (g *replicaGroup) AdminAddress() string {
	for _, r := range g.replicas {
		if r.runs() {
			return r.api
		}
	}
	return ""
}

// Health implements [Management].
func (g *replicaGroup) Health(ctx context.Context) (map[string]isobar.HealthStatus, error) {
	out := make(map[string]isobar.HealthStatus)
	err := errors.New("no replica answers")
	for _, r := range g.replicas {
		if !r.runs() {
			continue
		}
		var list admin.VerdictList
		if list, err = r.remote.Verdicts(ctx, ""); err != nil {
			continue
		}
		for i := range list.Services {
			for j := range list.Services[i].Endpoints {
				v := &list.Services[i].Endpoints[j]
				out[v.Address] = v.Status
			}
		}
		return out, nil
	}
	return nil, err
}

// Stop implements [Management].
func (g *replicaGroup) Stop() error {
	g.watch.Wait()
	g.marking.Wait()
	var err error
	if g.front != nil {
		err = g.front.Close()
	}
	for _, r := range g.replicas {
		if r.runs() {
			_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		}
	}
	patience := time.NewTimer(replicaPatience)
	defer patience.Stop()
	for _, r := range g.replicas {
		if r.cmd == nil {
			continue
		}
		select {
		case <-r.ended:
		case <-patience.C:
			_ = r.cmd.Process.Kill()
			<-r.ended
			err = errors.Join(err, fmt.Errorf("replica %s did not end on SIGTERM", r.name))
		}
	}
	return errors.Join(err, os.RemoveAll(g.dir))
}
