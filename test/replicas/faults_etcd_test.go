package replicas

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
)

// loseQuorum asserts that replicas serve and refuse writes while etcd has no quorum, and that
// a follower that is restarted meanwhile serves, too.
func loseQuorum(outage time.Duration) func(w *world) time.Duration {
	return func(w *world) time.Duration {
		leader, version := w.Leader()
		down := w.etcd.members[:2]
		for _, m := range down {
			w.etcd.kill(m)
		}
		began := time.Now()
		w.refusesWrites()
		for _, r := range w.Replicas {
			w.Await(r.Name+" shows a caretaker", func() bool {
				var s admin.ReplicaGroup
				return r.Get(w.t.Context(), "/v1/replicas", &s) == nil && s.Caretaker() == leader.Name
			})
		}
		restarts := outage >= time.Minute
		look := time.NewTicker(min(outage/2, 30*time.Second))
		defer look.Stop()
		for ; time.Since(began) < outage; <-look.C {
			for _, r := range w.Replicas {
				if v := r.Version(w.t.Context()); v < version || v > version+nextClaim {
					w.t.Errorf("%s serves version %d after %s without a quorum of etcd; it had %d before", r.Name, v, time.Since(began), version)
				}
			}
			if restarts && time.Since(began) > outage/2 {
				restarts = false
				follower := w.others(leader)[0]
				w.Kill(follower)
				w.Start(follower)
				w.awaitOn(began, version-1, follower)
			}
		}
		w.refusesWrites()
		began = time.Now()
		for _, m := range down {
			w.etcd.start(m)
		}
		return w.writesAgain(began)
	}
}

// refusesWrites awaits that operators' writes are refused.
func (w *world) refusesWrites() {
	w.t.Helper()
	w.Await("a refused write", func() bool {
		err := w.write(w.Replicas[0], "refused", `{"name": "refused", "localities": [{"locality": "us/a", "endpoints": [{"address": "127.0.0.1:9"}]}]}`)
		return err != nil && strings.Contains(err.Error(), "503")
	})
}

// writesAgain awaits that an operator's write succeeds, and returns how long that took
// since a moment.
func (w *world) writesAgain(since time.Time) time.Duration {
	w.t.Helper()
	w.Await("a write that succeeds", func() bool {
		return w.write(w.Replicas[0], "again", `{"name": "again", "localities": [{"locality": "us/a", "endpoints": [{"address": "127.0.0.1:9"}]}]}`) == nil
	})
	return time.Since(since)
}

func slowEtcd(w *world) time.Duration {
	for _, r := range w.Replicas {
		for _, l := range r.Engine {
			l.Slow(2 * time.Second)
		}
	}
	<-time.After(20 * time.Second)
	for _, r := range w.Replicas {
		for _, l := range r.Engine {
			l.Heal()
		}
	}
	return w.writesAgain(time.Now())
}

// restoreEtcd replaces the state of etcd by that of a moment before the last write.
func restoreEtcd(w *world) time.Duration {
	backup := w.t.TempDir()
	kept := func(i int) string { return filepath.Join(backup, fmt.Sprint(i)) }
	w.replaceEtcd(func(i int, data string) error { return os.CopyFS(kept(i), os.DirFS(data)) })
	return w.writtenAgain(func(i int, data string) error {
		return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(kept(i))))
	})
}

func loseEtcd(w *world) time.Duration {
	return w.writtenAgain(func(_ int, data string) error { return os.RemoveAll(data) })
}

// writtenAgain writes, does something to the stopped etcd, and waits until it has what
// was written.
func (w *world) writtenAgain(replace func(i int, data string) error) time.Duration {
	w.rest()
	body := `{"name": "since", "localities": [{"locality": "us/a", "max_rate": %d, "endpoints": [{"address": "127.0.0.1:9"}]}]}`
	body = fmt.Sprintf(body, time.Now().Unix())
	w.Await("a write before etcd stops", func() bool { return w.write(w.Replicas[0], "since", body) == nil })
	w.replaceEtcd(replace)
	began := time.Now()
	client := w.etcd.client()
	w.Await("the write of before in etcd", func() bool {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		got, err := client.Get(ctx, "isobar/test/operators/entries/services/since")
		return err == nil && len(got.Kvs) == 1
	})
	return time.Since(began)
}

// replaceEtcd stops all members, has each one's data replaced, and starts them.
func (w *world) replaceEtcd(replace func(i int, data string) error) {
	for _, m := range w.etcd.members {
		w.etcd.kill(m)
	}
	for i, m := range w.etcd.members {
		if err := replace(i, m.args[slices.Index(m.args, "--data-dir")+1]); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, m := range w.etcd.members {
		w.etcd.start(m)
	}
}
