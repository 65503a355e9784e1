package replicas

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/testhelp/replicatest"
)

// takeover is what the documentation promises for the first plan after the leader is
// gone: the lease of 10 s runs out, and its successor gathers and claims.
const takeover = 12 * time.Second

// election is how much later everything may be where etcd elects a leader of its own
// meanwhile, as it does when its processes get too little of the processor.
const election = 4 * time.Second

// decision is what it promises for the first decision: that of the first tick.
const decision = takeover + 2*time.Second

// nextClaim is how far above a version each version of the next claim is, at least.
const nextClaim = 900_000

var (
	faultCount = flag.Int("faults.count", 1, "how often TestFaults repeats each fault")
	faultRun   = flag.String("faults.run", "", "a regular expression: the faults that TestFaults plays; default: all")
	faultPage  = flag.Bool("faults.write", false, "write the figures of TestFaults into the documentation")
	faultOlder = flag.String("faults.older", "", "the path of isobar of an earlier version, for the faults that need one")
	faultFull  = flag.Bool("faults.full", false, "play also the faults that CI leaves out")
)

// world is a group of three servers on an etcd of three members, under load.
type world struct {
	*replicatest.Group

	t    *testing.T
	etcd *cluster
	load *replicatest.Load
	name string // of the mark that the next fault writes

	program string // the path of isobar
}

// fault is one row of the table.
type fault struct {
	name  string
	bound time.Duration // on the figure that play returns; 0 = none is stated
	what  string        // what the figure is
	full  bool          // CI leaves it out
	long  bool          // it is left out unless -faults.run names it
	older bool          // it needs the program of an earlier version
	play  func(w *world) time.Duration
}

// faults are played one after the other, each from a group of three live replicas that
// follow one leader.
var faults = []fault{
	{name: "an operator has the leader step down", bound: 2 * time.Second, what: "first plan of the next epoch on all replicas", play: stepDown},
	{name: "SIGTERM of the leader", bound: 2 * time.Second, what: "first plan of the next epoch on all replicas", play: terminate},
	{name: "SIGKILL of a follower", bound: 3 * time.Second, what: "back to the leader's newest plan, once started", play: killFollower},
	{name: "SIGKILL of the leader", bound: takeover, what: "first plan of the next epoch on all replicas", play: killLeader},
	{name: "SIGKILL of the leader under load", bound: decision, what: "first decision of the next leader", play: killUntilDecision},
	{name: "SIGKILL of the leader, and an endpoint refuses connections", bound: eviction, what: "clients lose the endpoint, by checkers of the followers", play: loseEndpoint},
	{name: "SIGSTOP of the leader for 30 s, then SIGCONT", bound: takeover, what: "first plan of the next epoch on all others", play: freezeLeader},
	{name: "the leader is cut off from etcd", bound: takeover, what: "first plan of the next epoch on all replicas", play: cutLeaderFromEtcd},
	{name: "the leader is cut off from the followers", bound: takeover, what: "first plan of the next epoch on both others", play: cutLeaderFromFollowers},
	{name: "the leader is cut off from everything but its clients", bound: takeover, what: "first plan of the next epoch on both others", play: isolateLeader},
	{name: "a follower is cut off from everything but its clients", bound: 3 * time.Second, what: "back to the leader's newest plan, once healed", play: isolateFollower},
	{name: "the leader's messages do not arrive", bound: takeover, what: "first plan of the next epoch on both others", play: silenceLeader},
	{name: "etcd without quorum for 20 s", bound: takeover, what: "a write succeeds again, once etcd has its quorum", play: loseQuorum(20 * time.Second)},
	{name: "etcd without quorum for an hour", full: true, long: true, bound: takeover, what: "a write succeeds again, once etcd has its quorum", play: loseQuorum(time.Hour)},
	{name: "etcd answers after 2 s", full: true, what: "a write succeeds again, once etcd is fast", play: slowEtcd},
	{name: "etcd is restored from an older backup", full: true, what: "a write from before the fault is in etcd again", play: restoreEtcd},
	{name: "etcd loses all data", full: true, what: "a write from before the fault is in etcd again", play: loseEtcd},
	{name: "the next leader has an older configuration file", full: true, bound: takeover, what: "first plan of the next epoch, with the service that the file lacks", play: oldFile},
	{name: "SIGKILL of a follower that has 10,000 streams", full: true, bound: 10 * time.Second, what: "an answer on each stream from another replica", play: herd},
	{name: "SIGKILL of all replicas", full: true, what: "plans on all replicas, once started", play: killAll},
	{name: "SIGKILL of all replicas, their disks are lost", full: true, bound: takeover + time.Minute, what: "an answer on each stream of a client that comes back", play: loseDisks},
	{name: "all replicas are replaced one by one", full: true, what: "the whole replacement", play: rolling},
	{name: "all replicas are replaced by an earlier version one by one, and then by this one", full: true, older: true, what: "both replacements", play: upgrade},
}

// result is what the repetitions of a fault showed.
type result struct {
	fault        *fault
	played       int             // repetitions, of which
	missed       int             // did not show what they had to
	took         []time.Duration // of the others, and of those that came to their end
	sent, failed int64
	seen         []string // that no client may see
}

func (r *result) String() string {
	if len(r.took) == 0 {
		return fmt.Sprintf("%d times, %d missed", r.played, r.missed)
	}
	took := slices.Sorted(slices.Values(r.took))
	return fmt.Sprintf("%d times, %d missed: median %.1f s, longest %.1f s; %d of %d requests failed; %d versions went back or had two contents",
		r.played, r.missed, took[len(took)/2].Seconds(), took[len(took)-1].Seconds(), r.failed, r.sent, len(r.seen))
}

// TestFaults plays the faults of a group, and asserts the bounds that the documentation
// states: the time, no failed request, no version that goes back or has two contents, and
// no acknowledged write of an operator that is lost. It plays each fault once, then each
// one again. After a repetition that fails it goes on with a new group.
func TestFaults(t *testing.T) {
	program := filepath.Join(t.TempDir(), "isobar")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/isobar")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building isobar: %v; %s", err, out)
	}
	only := regexp.MustCompile(*faultRun)
	var results []*result
	for i := range faults {
		f := &faults[i]
		if only.MatchString(f.name) && (!f.full || *faultFull) && (!f.long || *faultRun != "") && (!f.older || *faultOlder != "") {
			results = append(results, &result{fault: f})
		}
	}
	began, played, all := time.Now(), 0, len(results)**faultCount
	for groups := 1; played < all; groups++ {
		before := played
		t.Run(fmt.Sprintf("group %d", groups), func(t *testing.T) {
			w := newWorld(t, program)
			for ; played < all && !t.Failed(); played++ {
				r, n := results[played%len(results)], played/len(results)
				t.Run(r.fault.name, func(t *testing.T) { w.repetition(t, r, n) })
				t.Logf("%d of %d after %s: %-60s %s", played+1, all, time.Since(began).Round(time.Second), r.fault.name, r)
				if *faultPage && (played+1)%len(results) == 0 {
					if err := writeFaults(results); err != nil {
						t.Error(err)
					}
				}
			}
			w.Judge(w.load)
		})
		if played == before {
			break // no group comes up at all
		}
	}
	for _, r := range results {
		t.Logf("%-60s %s", r.fault.name, r)
	}
}

func newWorld(t *testing.T, program string) *world {
	t.Helper()
	w := &world{t: t, etcd: startCluster(t, 3), program: program}
	var members []string
	for _, m := range w.etcd.members {
		members = append(members, strings.TrimPrefix(m.client, "http://"))
	}
	zones := []isobar.Locality{isobar.MustLocality("us/a"), isobar.MustLocality("us/b")}
	w.Group = replicatest.New(t, replicatest.Options{Program: program, Zones: zones, Etcd: members})
	for _, r := range w.Replicas {
		w.Start(r)
	}
	w.Leader()
	w.load = w.StartLoad(zones[0], 3)
	return w
}

// repetition plays a fault once, as a test of its own.
func (w *world) repetition(t *testing.T, r *result, n int) {
	t.Helper()
	outer := w.t
	w.within(t)
	defer func() {
		w.within(outer)
		r.played++
		if t.Failed() {
			r.missed++
		}
	}()
	w.once(r, n)
}

func (w *world) within(t *testing.T) {
	t.Helper()
	w.t, w.etcd.t = t, t
	w.Within(t)
}

// once plays a fault from a group at rest to a group at rest.
func (w *world) once(r *result, n int) {
	w.t.Helper()
	w.rest()
	// Operators write before each fault, and find the write after it.
	w.name = fmt.Sprintf("mark-%d", n%5)
	body := fmt.Sprintf(`{"name": %q, "localities": [{"locality": "us/a", "max_rate": %d, "endpoints": [{"address": "127.0.0.1:9"}]}]}`, w.name, 1000+n)
	if err := w.write(w.Replicas[n%len(w.Replicas)], w.name, body); err != nil {
		w.t.Errorf("%s: a write of an operator before it: %v", r.fault.name, err)
	}
	sent, failed := w.load.Counts()
	term := w.etcd.term()
	took := r.fault.play(w)
	w.rest()
	bound := r.fault.bound
	if bound > 0 && w.etcd.term() != term {
		bound += election
	}
	after, failures := w.load.Counts()
	r.took = append(r.took, took)
	r.sent, r.failed = r.sent+after-sent, r.failed+failures-failed
	seen := w.load.Faults()
	r.seen = append(r.seen, seen...)
	if bound > 0 && took > bound {
		w.t.Errorf("%s: %s after %v, the bound is %v", r.fault.name, r.fault.what, took, bound)
	}
	if failures > failed {
		w.t.Errorf("%s: %d of %d requests failed", r.fault.name, failures-failed, after-sent)
	}
	for _, s := range seen {
		w.t.Errorf("%s: %s", r.fault.name, s)
	}
	for _, replica := range w.Replicas {
		want := fmt.Sprintf(`"max_rate":%d,`, 1000+n)
		w.Await("the write of an operator on "+replica.Name, func() bool {
			text, err := w.read(replica, "/v1/services/"+w.name)
			return err == nil && strings.Contains(text, want)
		})
	}
}

// rest waits until all replicas live and follow one leader.
func (w *world) rest() {
	w.t.Helper()
	w.Await("group at rest", func() bool {
		leader, versions := "", map[uint64]bool{}
		for _, r := range w.Replicas {
			var g admin.ReplicaGroup
			if !r.Runs() || r.Get(w.t.Context(), "/v1/replicas", &g) != nil || g.Leader == "" || !g.Engine || !g.Removes || g.Live() != len(w.Replicas) {
				return false
			}
			if leader == "" {
				leader = g.Leader
			}
			if g.Leader != leader {
				return false
			}
			v := r.Version(w.t.Context())
			versions[v] = true
		}
		return !versions[0]
	})
}

// write writes a service of the admin API at a replica.
func (w *world) write(r *replicatest.Process, name, body string) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+r.API+"/v1/services/"+name, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	return answered(req)
}

func answered(req *http.Request) error {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}

func (w *world) read(r *replicatest.Process, path string) (string, error) {
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+r.API+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// others are all replicas but one.
func (w *world) others(r *replicatest.Process) []*replicatest.Process {
	return slices.DeleteFunc(slices.Clone(w.Replicas), func(o *replicatest.Process) bool { return o == r })
}

// awaitOn awaits a version above the given one on these replicas, and returns how long
// that took since a moment.
func (w *world) awaitOn(since time.Time, above uint64, replicas ...*replicatest.Process) time.Duration {
	w.t.Helper()
	w.Await(fmt.Sprintf("version above %d", above), func() bool {
		for _, r := range replicas {
			if r.Version(w.t.Context()) <= above {
				return false
			}
		}
		return true
	})
	return time.Since(since)
}
