package replicas

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/engine/enginetest"
	"github.com/isobar-xds/isobar/internal/replica/engine/etcd"
	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/testhelp/replicatest"
)

// register is what operators wrote, as one value with its number.
type register struct {
	sequence uint64
	value    string
}

// access is a read, or a write that follows the write previous.
type access struct {
	write    bool
	previous uint64
	value    string
}

// outcome is what came of an access.
type outcome struct {
	register // of a read

	stale   bool // the write was refused
	unknown bool // nobody knows whether it happened
}

// registerModel says what a register does whose writes follow each other.
var registerModel = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(register), input.(access), output.(outcome)
		written := register{in.previous + 1, in.value}
		switch {
		case !in.write:
			return s == out.register, s
		case out.unknown && s.sequence != in.previous: // it is last of all, or was refused
			return true, s
		case out.stale:
			return s.sequence != in.previous, s
		}
		return s.sequence == in.previous, written
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
}

// manyEntries is more than one transaction of etcd takes.
const manyEntries = 150

// worker writes and reads over connections of its own, which can be cut.
type worker struct {
	engine *etcd.Engine
	links  []*replicatest.Link
}

func newWorker(t *testing.T, c *cluster, self group.Identity) *worker {
	t.Helper()
	w := &worker{}
	var endpoints []string
	for _, m := range c.members {
		l, err := replicatest.NewLink(strings.TrimPrefix(m.client, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		w.links = append(w.links, l)
		endpoints = append(endpoints, "http://"+l.Address())
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: time.Second, DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if w.engine, err = etcd.Open(etcd.Options{Client: client, Group: "linear", Self: self, TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.engine.Close() })
	return w
}

// TestWritesAreLinearizable has several connections of one leader read and write what
// operators write, while connections are cut and members of etcd are killed, and checks
// the whole history with porcupine. Half of the writes are larger than a transaction: a
// read sees all of a write, or nothing.
func TestWritesAreLinearizable(t *testing.T) {
	const workers, length = 5, 20 * time.Second
	c := startCluster(t, 3)
	self := enginetest.Replica("a", 1)
	var all []*worker
	for range workers {
		all = append(all, newWorker(t, c, self))
	}
	first := all[0].engine
	enginetest.Do(t, first, group.Request{Op: group.OpAcquire})
	claim := group.Claim{Epoch: 1, Leader: self, First: group.BlockSize + 1}
	if s := enginetest.Do(t, first, group.Request{Op: group.OpClaim, Claim: claim}); s.Claim != claim {
		t.Fatalf("the engine has %s", s.Claim)
	}

	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var mu sync.Mutex
	var history []porcupine.Operation
	last := int64(2 * length) // when operations of unknown outcome end
	note := func(id int, in access, out outcome, call time.Duration) {
		end := int64(time.Since(began))
		if out.unknown {
			end = last
		}
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{ClientId: id, Input: in, Output: out, Call: int64(call), Return: end})
	}
	var work sync.WaitGroup
	for i, w := range all {
		rng := rand.New(rand.NewPCG(uint64(i), 7))
		work.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id := i + workers*n // an operation of unknown outcome overlaps those that follow
				if err := w.step(ctx, id, rng, claim, func(in access, out outcome, call time.Duration) { note(id, in, out, call) }, began); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	work.Go(func() { disturb(ctx, c, all) })
	work.Wait()
	counts := map[string]int{}
	for i := range history {
		in, out := history[i].Input.(access), history[i].Output.(outcome)
		switch {
		case !in.write:
			counts["reads"]++
		case out.unknown:
			counts["unknown"]++
		case out.stale:
			counts["stale"]++
		default:
			counts["writes"]++
		}
	}
	t.Logf("%v", counts)
	if counts["writes"] < 20 || counts["reads"] < 20 || counts["unknown"] == 0 {
		t.Errorf("too little happened: %v", counts)
	}
	if result := porcupine.CheckOperationsTimeout(registerModel, history, patience); result != porcupine.Ok {
		t.Errorf("the history of %d operations is %s", len(history), result)
	}
}

// step reads, and writes what follows.
func (w *worker) step(
	ctx context.Context, id int, rng *rand.Rand, claim group.Claim, note func(access, outcome, time.Duration), began time.Time,
) error {
	once, end := context.WithTimeout(ctx, time.Second)
	defer end()
	call := time.Since(began)
	read, err := w.engine.ReadOperators(once)
	if err != nil {
		return nil // a read that fails tells nothing
	}
	now := register{sequence: read.Sequence}
	for key, data := range read.Entries {
		if now.value == "" {
			now.value = string(data)
		}
		if string(data) != now.value {
			return fmt.Errorf("a read sees %s at %s beside %s: a part of a write", data, key, now.value)
		}
	}
	if now.sequence > 0 && len(read.Entries) != manyEntries {
		return fmt.Errorf("a read sees %d entries", len(read.Entries))
	}
	note(access{}, outcome{register: now}, call)
	in := access{write: true, previous: now.sequence, value: fmt.Sprint(id)}
	if rng.IntN(4) == 0 && in.previous > 0 {
		in.previous-- // it is stale
	}
	changes := make([]engine.Change, manyEntries)
	for i := range changes {
		changes[i] = engine.Change{Key: fmt.Sprintf("services/%d", i), Data: []byte(in.value)}
	}
	call = time.Since(began)
	err = w.engine.WriteOperators(once, claim, in.previous, in.previous+1, changes)
	if errors.Is(err, engine.ErrNotLeading) {
		return err
	}
	stale := errors.Is(err, engine.ErrStale)
	note(in, outcome{stale: stale, unknown: err != nil && !stale}, call)
	return nil
}

// disturb cuts connections and kills members of etcd until ctx ends.
func disturb(ctx context.Context, c *cluster, all []*worker) {
	rng := rand.New(rand.NewPCG(1, 2))
	pause := func() {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(200+rng.IntN(600)) * time.Millisecond):
		}
	}
	for ctx.Err() == nil {
		w := all[rng.IntN(len(all))]
		m := c.members[rng.IntN(len(c.members))]
		kills := rng.IntN(4) == 0
		if kills {
			c.kill(m)
		}
		for _, l := range w.links {
			if rng.IntN(3) > 0 {
				l.Cut()
			}
		}
		pause()
		for _, l := range w.links {
			l.Heal()
		}
		if kills {
			c.start(m)
		}
		pause()
	}
}
