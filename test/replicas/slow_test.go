package replicas

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/replica"
	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/engine/enginetest"
	"github.com/isobar-xds/isobar/internal/replica/engine/etcd"
	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// noDisk is the disk of a replica that never restarts.
type noDisk struct{}

func (noDisk) LoadReplica() ([]byte, error) { return nil, nil }
func (noDisk) SaveReplica([]byte) error     { return nil }
func (noDisk) LoadPlan() ([]byte, error)    { return nil, nil }
func (noDisk) SavePlan([]byte) error        { return nil }

// TestManyWritesOnASlowEtcd asserts that a leader reads and writes also what takes many requests to an etcd
// that answers each one late: a new leader that can't read what operators wrote makes no plan, and one that
// can't write it into an etcd that was lost does not either.
func TestManyWritesOnASlowEtcd(t *testing.T) {
	c := startCluster(t, 1)
	first := enginetest.Replica("first", 1)
	direct := c.openFor("many", first, 30*time.Second)
	enginetest.Do(t, direct, group.Request{Op: group.OpAcquire})
	claim := group.Claim{Epoch: 1, Leader: first, First: group.BlockSize + 1}
	enginetest.Do(t, direct, group.Request{Op: group.OpClaim, Claim: claim})
	const kept, written = 4000, 1000
	changes := make([]engine.Change, kept)
	for i := range changes {
		changes[i] = engine.Change{Key: fmt.Sprintf("services/%d", i), Data: []byte("1")}
	}
	if err := direct.WriteOperators(t.Context(), claim, 0, 1, changes); err != nil {
		t.Fatal(err)
	}
	enginetest.Do(t, direct, group.Request{Op: group.OpRelease})

	link, far := c.link(t)
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, err := replica.New(replica.Options{
		Group: "many", Name: "second", Disk: noDisk{}, Listener: listener, Log: slog.New(slog.DiscardHandler),
		Open: func(content group.Content) (any, error) { return content, nil },
		OpenEngine: func(self group.Identity) (engine.Engine, error) {
			return etcd.Open(etcd.Options{Client: far, Group: "many", Self: self})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	runs.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(runs.Wait)
	t.Cleanup(stop)
	testhelp.Eventually(t, "the replica leads", func() bool {
		role, _ := r.Role()
		return role == group.Leading
	})
	link.Slow(400 * time.Millisecond)
	began := time.Now()
	w, err := r.ReadOperators(t.Context())
	if err != nil || len(w.Entries) != kept {
		t.Errorf("after %v it read %d entries of %d: %v", time.Since(began), len(w.Entries), kept, err)
	}
	began = time.Now()
	if err := r.WriteOperators(t.Context(), 1, 2, changes[:written]); err != nil {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	if role, _ := r.Role(); role != group.Leading {
		t.Errorf("the replica is %s", role)
	}
}
