package replicas

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/engine/enginetest"
	"github.com/isobar-xds/isobar/internal/replica/engine/etcd"
	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// etcd's alarm once it refuses writes.
func TestEtcdNearlyFull(t *testing.T) {
	c := startCluster(t, 1, "--quota-backend-bytes", "4194304")
	e, client := c.open("full", enginetest.Replica("a", 1)), c.client()
	if w := e.Warnings(t.Context()); len(w) > 0 {
		t.Errorf("an empty etcd has warnings: %q", w)
	}
	put := func(key string) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := client.Put(ctx, key, strings.Repeat("x", 128<<10))
		return err
	}
	var told []string
	for i := 0; i < 60 && told == nil; i++ {
		if err := put(fmt.Sprintf("fill/%d", i)); err != nil {
			t.Fatalf("there was no warning before etcd refused a write: %v", err)
		}
		// etcd counts what it has committed, which it does a few times a second: a member that
		// is defragmented counts everything.
		if _, err := client.Defragment(t.Context(), c.members[0].client); err != nil {
			t.Fatal(err)
		}
		told = e.Warnings(t.Context())
	}
	if len(told) != 1 || !strings.Contains(told[0], "of 4 MiB") {
		t.Errorf("the warning is %q", told)
	}
	// A write that exceeds the quota has the member raise its alarm. It tries once for each such
	// write, and refuses the write whether it succeeded or not.
	writes := 0
	testhelp.Eventually(t, "a full etcd has two warnings, the first of NOSPACE", func() bool {
		writes++
		refused := put(fmt.Sprintf("more/%d", writes))
		w := e.Warnings(t.Context())
		return refused != nil && len(w) == 2 && strings.Contains(w[0], "NOSPACE")
	})
}

// TestEtcdRefusesWrites asserts what an etcd without space does to a group: the leader keeps its lease,
// other replicas learn who leads, operators' writes are refused with the reason, and nobody can win
// leadership that was given up until etcd has space. A replica whose request fails so does not count
// as one that could lead.
func TestEtcdRefusesWrites(t *testing.T) {
	c := startCluster(t, 1)
	a, b := enginetest.Replica("a", 1), enginetest.Replica("b", 1)
	first, second := c.open("full", a), c.open("full", b)
	enginetest.Do(t, first, group.Request{Op: group.OpAcquire})
	claim := group.Claim{Epoch: 1, Leader: a, First: group.BlockSize + 1}
	enginetest.Do(t, first, group.Request{Op: group.OpClaim, Claim: claim})
	enginetest.Do(t, second, group.Request{Op: group.OpAcquire, Reaches: 2})
	alarm := c.raise(pb.AlarmRequest_ACTIVATE)

	for range 10 { // twice the lease
		<-time.After(400 * time.Millisecond)
		if s := enginetest.Do(t, first, group.Request{Op: group.OpRenew}); s.Holder != a {
			t.Fatalf("%q leads", s.Holder)
		}
		if s := enginetest.Do(t, second, group.Request{Op: group.OpAcquire, Reaches: 2}); s.Holder != a || s.Claim != claim {
			t.Fatalf("%q leads with %s", s.Holder, s.Claim)
		}
	}
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "space exceeded") {
			t.Errorf("%s: got %v, want that the space is exceeded", what, err)
		}
	}
	change := []engine.Change{{Key: "services/x", Data: []byte("1")}}
	refused("an operator's write", first.WriteOperators(t.Context(), claim, 0, 1, change))
	_, err := second.Do(t.Context(), group.Request{Op: group.OpAcquire, Reaches: 3})
	refused("a follower that reaches more", err)
	enginetest.Do(t, first, group.Request{Op: group.OpRelease})
	_, err = second.Do(t.Context(), group.Request{Op: group.OpAcquire, Reaches: 3})
	refused("a campaign", err)

	alarm(pb.AlarmRequest_DEACTIVATE)
	until(t, second, group.Request{Op: group.OpAcquire}, leads(b))
}

// raise has etcd raise the alarm of a full database, and returns what ends it.
func (c *cluster) raise(first pb.AlarmRequest_AlarmAction) func(pb.AlarmRequest_AlarmAction) {
	c.t.Helper()
	client := c.client()
	member, err := client.Status(c.t.Context(), c.members[0].client)
	if err != nil {
		c.t.Fatal(err)
	}
	do := func(action pb.AlarmRequest_AlarmAction) {
		c.t.Helper()
		m := &pb.AlarmRequest{Action: action, MemberID: member.Header.GetMemberId(), Alarm: pb.AlarmType_NOSPACE}
		if _, err := pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(c.t.Context(), m); err != nil {
			c.t.Fatal(err)
		}
	}
	do(first)
	return do
}

// TestEtcdLacksAMember asserts that operators are told of a member that does not answer while the
// others do: the group can't stand the loss of as many more as they may expect.
func TestEtcdLacksAMember(t *testing.T) {
	c := startCluster(t, 3)
	e := c.open("lacks", enginetest.Replica("a", 1))
	if w := e.Warnings(t.Context()); len(w) > 0 {
		t.Errorf("a whole etcd has warnings: %q", w)
	}
	lost := c.members[1]
	c.kill(lost)
	if w := e.Warnings(t.Context()); len(w) != 1 || !strings.Contains(w[0], lost.client+" does not answer: ") {
		t.Errorf("the warnings are %q", w)
	}
	c.start(lost)
	testhelp.Eventually(t, "no warning", func() bool { return len(e.Warnings(t.Context())) == 0 })
	for _, m := range c.members {
		c.kill(m)
	}
	if w := e.Warnings(t.Context()); len(w) > 0 {
		t.Errorf("where nobody answers, the warnings are %q", w)
	}
}

// TestEtcdOfTwoClusters asserts that operators are told of endpoints that do not belong to
// one cluster: each of them would grant leadership on its own.
func TestEtcdOfTwoClusters(t *testing.T) {
	a, b := startCluster(t, 1), startCluster(t, 1)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{a.members[0].client, b.members[0].client}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	e, err := etcd.Open(etcd.Options{Client: client, Group: "two", Self: enginetest.Replica("a", 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	w := e.Warnings(t.Context())
	if len(w) != 1 || !strings.Contains(w[0], a.members[0].client+" and "+b.members[0].client+" belong to different clusters") {
		t.Errorf("the warnings are %q", w)
	}
}

func TestEtcd(t *testing.T) {
	c := startCluster(t, 3)
	groups := 0
	t.Run("rules", func(t *testing.T) {
		enginetest.Run(t, func(t *testing.T) enginetest.Open {
			t.Helper()
			groups++
			name := fmt.Sprintf("g%d", groups)
			return func(t *testing.T, self group.Identity) engine.Engine {
				t.Helper()
				return c.openFor(name, self, 30*time.Second) // on a busy machine, many writes take seconds
			}
		})
	})
	t.Run("a lease that is not renewed runs out, and the watch tells", func(t *testing.T) {
		a, b := enginetest.Replica("a", 1), enginetest.Replica("b", 1)
		first, second := c.open("expiry", a), c.open("expiry", b)
		enginetest.Do(t, first, group.Request{Op: group.OpAcquire})
		enginetest.Do(t, second, group.Request{Op: group.OpAcquire})
		select {
		case <-second.Changed():
		case <-time.After(patience):
			t.Fatal("nobody told that the leader's key is gone")
		}
		until(t, second, group.Request{Op: group.OpAcquire}, leads(b))
		until(t, first, group.Request{Op: group.OpRenew}, leads(b))
	})
	t.Run("renewals keep the lease", func(t *testing.T) {
		a, b := enginetest.Replica("a", 1), enginetest.Replica("b", 1)
		first, second := c.open("renewals", a), c.open("renewals", b)
		enginetest.Do(t, first, group.Request{Op: group.OpAcquire})
		for range 10 { // twice the lease
			<-time.After(400 * time.Millisecond)
			if s := enginetest.Do(t, first, group.Request{Op: group.OpRenew}); s.Holder != a {
				t.Fatalf("%s leads", s.Holder)
			}
			if s := enginetest.Do(t, second, group.Request{Op: group.OpAcquire}); s.Holder != a {
				t.Fatalf("%s leads", s.Holder)
			}
		}
	})
	t.Run("a deleted key ends leadership", func(t *testing.T) {
		a, b := enginetest.Replica("a", 1), enginetest.Replica("b", 1)
		first, second := c.open("deleted", a), c.open("deleted", b)
		enginetest.Do(t, first, group.Request{Op: group.OpAcquire})
		if _, err := c.client().Delete(t.Context(), "isobar/deleted/election/leader"); err != nil {
			t.Fatal(err)
		}
		if s := enginetest.Do(t, first, group.Request{Op: group.OpRenew}); s.Holder == a {
			t.Fatal("a renews a key that is gone")
		}
		until(t, second, group.Request{Op: group.OpAcquire}, leads(b))
	})
	for name, end := range map[string]func(key *mvccpb.KeyValue) error{
		"its key is deleted": func(key *mvccpb.KeyValue) error {
			_, err := c.client().Delete(t.Context(), string(key.Key))
			return err
		},
		"its lease ends": func(key *mvccpb.KeyValue) error {
			_, err := c.client().Revoke(t.Context(), clientv3.LeaseID(key.Lease))
			return err
		},
	} {
		t.Run("a leader learns at its renewal that meanwhile "+name, func(t *testing.T) {
			link, far := c.link(t)
			a, of := enginetest.Replica("a", 1), fmt.Sprint("meanwhile-", len(name))
			e, err := etcd.Open(etcd.Options{Client: far, Group: of, Self: a, TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Close() })
			enginetest.Do(t, e, group.Request{Op: group.OpAcquire})
			got, err := c.client().Get(t.Context(), "isobar/"+of+"/election/leader")
			if err != nil || len(got.Kvs) != 1 {
				t.Fatal(got, err)
			}
			link.Slow(2 * time.Second)
			ended := make(chan error, 1)
			time.AfterFunc(500*time.Millisecond, func() { ended <- end(got.Kvs[0]) }) // after etcd has answered the first question
			if s := enginetest.Do(t, e, group.Request{Op: group.OpRenew}); s.Holder == a {
				t.Errorf("%s leads", s.Holder)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("a follower leaves what it reaches", func(t *testing.T) {
		a, b := enginetest.Replica("a", 1), enginetest.Replica("b", 1)
		first, second := c.open("present", a), c.open("present", b)
		enginetest.Do(t, first, group.Request{Op: group.OpAcquire})
		for _, reaches := range []int{2, 2, 3} {
			enginetest.Do(t, second, group.Request{Op: group.OpAcquire, Reaches: reaches})
			s := enginetest.Do(t, first, group.Request{Op: group.OpRenew})
			if len(s.Present) != 1 || s.Present[0].Name != "b" || s.Present[0].Reaches != reaches || s.Present[0].Age > time.Second {
				t.Fatalf("the leader reads %v", s.Present)
			}
		}
		// What it left grows old while it tells nothing more, and ends with its lease.
		until(t, first, group.Request{Op: group.OpRenew}, func(s group.Standing) bool { return len(s.Present) == 1 && s.Present[0].Age == 2*time.Second })
		until(t, first, group.Request{Op: group.OpRenew}, func(s group.Standing) bool { return len(s.Present) == 0 })
	})
	t.Run("damaged and newer claims", func(t *testing.T) {
		e := c.open("damaged", enginetest.Replica("a", 1))
		key := "isobar/damaged/election/claim"
		for _, data := range []string{"x", `{"format":9}`} {
			if _, err := c.client().Put(t.Context(), key, data); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Do(t.Context(), group.Request{Op: group.OpAcquire}); err == nil || !strings.Contains(err.Error(), key) {
				t.Fatalf("claim %q: got %v, want an error that names %s", data, err, key)
			}
			got, err := c.client().Get(t.Context(), key)
			if err != nil || string(got.Kvs[0].Value) != data {
				t.Fatalf("the claim %q was replaced: %v", data, err)
			}
		}
	})
	t.Run("a watch that is behind a compaction goes on", func(t *testing.T) {
		lost := c.members[0]
		far, err := clientv3.New(clientv3.Config{Endpoints: []string{lost.client}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = far.Close() })
		a, b := enginetest.Replica("a", 1), enginetest.Replica("b", 1)
		first := c.openFor("compacted", a, 30*time.Second)
		second, err := etcd.Open(etcd.Options{Client: far, Group: "compacted", Self: b})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = second.Close() })
		handOver := func() {
			until(t, first, group.Request{Op: group.OpAcquire}, leads(a))
			until(t, first, group.Request{Op: group.OpRelease}, leads(group.Identity{}))
		}
		told := func(what string) {
			t.Helper()
			testhelp.Eventually(t, "a signal of a change "+what, func() bool {
				handOver() // the first ones may come before the watch does
				select {
				case <-second.Changed():
					return true
				case <-time.After(200 * time.Millisecond):
					return false
				}
			})
		}
		told("before the compaction")
		c.kill(lost)
		handOver()
		got, err := c.client().Get(t.Context(), "isobar/compacted/election/claim")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.client().Compact(t.Context(), got.Header.GetRevision()); err != nil {
			t.Fatal(err)
		}
		c.start(lost)
		select { // of before
		case <-second.Changed():
		default:
		}
		told("after the compaction")
	})
	t.Run("without quorum requests fail, and it heals", func(t *testing.T) {
		a := enginetest.Replica("a", 1)
		e := c.open("quorum", a)
		enginetest.Do(t, e, group.Request{Op: group.OpAcquire})
		c.kill(c.members[1])
		c.kill(c.members[2])
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := e.Do(ctx, group.Request{Op: group.OpRenew}); err == nil || errors.Is(t.Context().Err(), context.Canceled) {
			t.Fatalf("a renewal without quorum: %v", err)
		}
		c.start(c.members[1])
		until(t, e, group.Request{Op: group.OpAcquire}, leads(a))
		c.start(c.members[2])
	})
}
