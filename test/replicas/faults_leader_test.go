package replicas

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/testhelp/replicatest"
)

func stepDown(w *world) time.Duration {
	leader, version := w.Leader()
	began := time.Now()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://"+w.Replicas[0].API+"/v1/replicas/step-down", strings.NewReader("{}"))
	if err == nil {
		req.Header.Set("Content-Type", "application/json")
		err = answered(req)
	}
	if err != nil {
		w.t.Error(err)
	}
	took := w.awaitOn(began, version+nextClaim, w.Replicas...)
	w.again(leader)
	return took
}

func terminate(w *world) time.Duration {
	leader, version := w.Leader()
	began := time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Stop(leader)
	}()
	took := w.awaitOn(began, version+nextClaim, w.others(leader)...)
	<-ended
	w.Start(leader)
	return took
}

func killLeader(w *world) time.Duration {
	leader, version := w.Leader()
	began := time.Now()
	w.Kill(leader)
	took := w.awaitOn(began, version+nextClaim, w.others(leader)...)
	w.Start(leader)
	return took
}

// killUntilDecision asserts that the next leader decides by what clients reported before,
// and does not only serve the weights that it found.
func killUntilDecision(w *world) time.Duration {
	decides := func(r *replicatest.Process, above uint64) bool {
		var p admin.PlanView
		if r.Get(w.t.Context(), "/v1/plan", &p) != nil || p.Trigger != "tick" {
			return false
		}
		version, err := strconv.ParseUint(p.Version, 10, 64)
		i := slices.IndexFunc(p.Services, func(s admin.ServiceView) bool { return s.Name == "checkout" })
		return err == nil && version > above && i >= 0 && p.Services[i].Solved && p.Services[i].Hold == ""
	}
	leader, version := w.Leader()
	w.Await("a decision of the leader", func() bool { return decides(leader, 0) })
	began := time.Now()
	w.Kill(leader)
	w.Await("a decision of the next leader", func() bool {
		return slices.ContainsFunc(w.others(leader), func(r *replicatest.Process) bool { return decides(r, version+nextClaim) })
	})
	took := time.Since(began)
	w.Start(leader)
	return took
}

// killFollower asserts that the leader stays: what the follower left in etcd says for ten
// seconds that it reached more of the group than the leader does now.
func killFollower(w *world) time.Duration {
	leader, version := w.Leader()
	follower := w.others(leader)[0]
	w.Kill(follower)
	<-time.After(12 * time.Second)
	now, after := w.Leader()
	if now != leader || after >= version+nextClaim {
		w.t.Errorf("%s led at version %d, and %s leads at %d since a follower was killed", leader.Name, version, now.Name, after)
	}
	began := time.Now()
	w.Start(follower)
	return w.awaitOn(began, leader.Version(w.t.Context()), follower)
}

func freezeLeader(w *world) time.Duration {
	leader, version := w.Leader()
	began := time.Now()
	w.Freeze(leader)
	took := w.awaitOn(began, version+nextClaim, w.others(leader)...)
	<-time.After(30*time.Second - time.Since(began))
	w.Thaw(leader)
	w.zombie(leader, version)
	return took
}

// zombie asserts that a leader that was frozen until after its lease makes at most one
// plan of its old claim, that no other replica serves that one, and that it follows soon.
func (w *world) zombie(leader *replicatest.Process, version uint64) {
	w.t.Helper()
	own := map[uint64]bool{}
	began := time.Now()
	for last := version; last <= version+nextClaim; {
		if time.Since(began) > 5*time.Second {
			w.t.Errorf("%s serves plan %d of its old claim 5 s after SIGCONT", leader.Name, last)
			return
		}
		if last = max(leader.Version(w.t.Context()), last); last > version && last <= version+nextClaim {
			own[last] = true
		}
		for _, r := range w.others(leader) {
			if v := r.Version(w.t.Context()); v <= version+nextClaim {
				w.t.Errorf("%s serves plan %d since %s goes on, which led before", r.Name, v, leader.Name)
			}
		}
	}
	if len(own) > 1 {
		w.t.Errorf("%s made %d plans of its old claim after SIGCONT", leader.Name, len(own))
	}
}

// cut cuts links while f runs, and heals them.
func cut(links []*replicatest.Link, f func()) {
	for _, l := range links {
		l.Cut()
	}
	defer func() {
		for _, l := range links {
			l.Heal()
		}
	}()
	f()
}

// around are the links between a replica and the others, in both directions.
func (w *world) around(r *replicatest.Process) []*replicatest.Link {
	var out []*replicatest.Link
	for _, o := range w.others(r) {
		out = append(out, r.Out[o.Name], o.Out[r.Name])
	}
	return out
}

func cutLeaderFromEtcd(w *world) (took time.Duration) {
	leader, version := w.Leader()
	began := time.Now()
	cut(leader.Engine, func() { took = w.awaitOn(began, version+nextClaim, w.Replicas...) })
	return took
}

func cutLeaderFromFollowers(w *world) (took time.Duration) {
	leader, version := w.Leader()
	began := time.Now()
	cut(w.around(leader), func() {
		took = w.awaitOn(began, version+nextClaim, w.others(leader)...)
		w.alone(leader)
	})
	w.again(leader)
	return took
}

// again restarts a replica that stepped down: it does not campaign for 30 s, and steps
// down because of what it reaches at most once in 5 minutes.
func (w *world) again(r *replicatest.Process) {
	w.t.Helper()
	w.rest()
	w.Stop(r)
	w.Start(r)
}

func isolateLeader(w *world) (took time.Duration) {
	leader, version := w.Leader()
	began := time.Now()
	cut(slices.Concat(w.around(leader), leader.Engine), func() {
		took = w.awaitOn(began, version+nextClaim, w.others(leader)...)
		w.alone(leader)
	})
	w.again(leader)
	return took
}

func isolateFollower(w *world) time.Duration {
	leader, _ := w.Leader()
	follower := w.others(leader)[0]
	cut(slices.Concat(w.around(follower), follower.Engine), func() {
		w.alone(follower)
		<-time.After(5 * time.Second)
	})
	began := time.Now()
	return w.awaitOn(began, leader.Version(w.t.Context()), follower)
}

// alone awaits that a replica which is cut off says so, and serves its plan.
func (w *world) alone(r *replicatest.Process) {
	w.t.Helper()
	w.Await("a replica that says that it is alone", func() bool {
		var g admin.ReplicaGroup
		return r.Get(w.t.Context(), "/v1/replicas", &g) == nil && g.Live() == 1 && !g.Removes && len(g.Troubles()) > 0 && r.Version(w.t.Context()) > 0
	})
}

func silenceLeader(w *world) time.Duration {
	leader, version := w.Leader()
	var links []*replicatest.Link
	for _, l := range leader.Out {
		links = append(links, l)
	}
	began := time.Now()
	var took time.Duration
	cut(links, func() {
		took = w.awaitOn(began, version+nextClaim, w.others(leader)...)
	})
	w.again(leader)
	return took
}

// oldFile adds a service to the configuration of all replicas, takes it from the file of
// one, and has that one lead, alone.
func oldFile(w *world) (took time.Duration) {
	added := fmt.Sprintf("- name: added\n  localities:\n  - {locality: us/a, endpoints: [%q]}\n", w.Backends[0])
	for _, r := range w.Replicas {
		w.Configure(r, w.Services+added)
	}
	lists := func(r *replicatest.Process) bool {
		text, err := w.read(r, "/v1/services/added")
		return err == nil && strings.Contains(text, w.Backends[0])
	}
	w.Await("the added service on all replicas", func() bool {
		return !slices.ContainsFunc(w.Replicas, func(r *replicatest.Process) bool { return !lists(r) })
	})
	leader, version := w.Leader()
	others := w.others(leader)
	old, follower := others[0], others[1]
	w.Configure(old, w.Services)
	w.Await("a replica that has another configuration", func() bool {
		var g admin.ReplicaGroup
		return old.Get(w.t.Context(), "/v1/replicas", &g) == nil && !g.Agreed
	})
	began := time.Now()
	w.Kill(follower)
	w.Kill(leader)
	took = w.awaitOn(began, version+nextClaim, old)
	for stays := time.Now(); time.Since(stays) < 3*time.Second; <-time.After(100 * time.Millisecond) {
		if !lists(old) {
			w.t.Errorf("%s has an older file, leads, and removed the service that the file lacks", old.Name)
			break
		}
	}
	w.Start(leader)
	w.Start(follower)
	w.rest()
	if !lists(leader) || !lists(follower) || !lists(old) {
		w.t.Error("the service that one file lacks is gone")
	}
	for _, r := range w.Replicas {
		w.Configure(r, w.Services)
	}
	w.Await("the configuration of before", func() bool {
		return !slices.ContainsFunc(w.Replicas, func(r *replicatest.Process) bool {
			var g admin.ReplicaGroup
			return r.Get(w.t.Context(), "/v1/replicas", &g) != nil || !g.Agreed || lists(r)
		})
	})
	return took
}

func killAll(w *world) time.Duration { return w.startAll(func(*replicatest.Process) {}) }

// loseDisks asserts that clients that come back are served at last: at first they are
// refused, until clients have reported load.
func loseDisks(w *world) time.Duration {
	_, version := w.Leader()
	began := time.Now()
	w.startAll(func(r *replicatest.Process) { w.Forget(r) })
	w.Await("an answer for each client that comes back", func() bool { return w.load.Least() > version })
	return time.Since(began)
}

func (w *world) startAll(between func(r *replicatest.Process)) time.Duration {
	_, version := w.Leader()
	for _, r := range w.Replicas {
		w.Kill(r)
	}
	began := time.Now()
	for _, r := range w.Replicas {
		between(r)
		w.Start(r)
	}
	return w.awaitOn(began, version, w.Replicas...)
}

func rolling(w *world) time.Duration {
	began := time.Now()
	for _, r := range w.Replicas {
		w.Stop(r)
		w.Start(r)
		w.rest()
	}
	return time.Since(began)
}

// upgrade has the versions side by side in both directions: the leader is replaced in the
// middle, so each of them leads a group of both.
func upgrade(w *world) time.Duration {
	began := time.Now()
	for _, program := range []string{*faultOlder, ""} {
		for _, r := range w.Replicas {
			w.Stop(r)
			r.Program = program
			w.Start(r)
			w.rest()
		}
	}
	return time.Since(began)
}
