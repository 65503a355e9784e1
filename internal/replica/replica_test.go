package replica_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isobar-xds/isobar/internal/replica"
	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/engine/file"
	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience stops a test that hangs; nothing is measured by it.
const patience = 20 * time.Second

// memoryDisk is a disk that survives its replica.
type memoryDisk struct {
	mu            sync.Mutex
	replica, plan []byte
}

func (d *memoryDisk) LoadReplica() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.replica, nil
}

func (d *memoryDisk) SaveReplica(data []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replica = data
	return nil
}

func (d *memoryDisk) LoadPlan() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.plan, nil
}

func (d *memoryDisk) SavePlan(data []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan = data
	return nil
}

// text is a content as text.
func text(c *group.Content) string { return string(c.AppendTo(nil)) }

// fleet is a group of replicas in this process.
type fleet struct {
	t       *testing.T
	dir     string
	peers   []replica.Peer
	members map[string]*member
	log     testhelp.Log  // of all
	slow    chan struct{} // capacity 1: while it is full, reading the plan "slow" takes
}

type member struct {
	*replica.Replica

	disk     *memoryDisk
	end      context.CancelFunc
	done     chan struct{}
	observed chan *peerv1.Observations
	reads    atomic.Bool // the plan "slow"
}

var timing = replica.Timing{
	Heartbeat: 50 * time.Millisecond, Deadline: 2 * time.Second, Renew: 200 * time.Millisecond, Campaign: 100 * time.Millisecond,
	EngineTimeout: time.Second, Gather: 300 * time.Millisecond, Rest: 500 * time.Millisecond,
}

func newFleet(t *testing.T, size int) *fleet {
	t.Helper()
	f := &fleet{t: t, dir: t.TempDir(), members: map[string]*member{}, slow: make(chan struct{}, 1)}
	var listeners []net.Listener
	for i := range size {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		f.peers = append(f.peers, replica.Peer{Name: fmt.Sprintf("isobar-%d", i), Address: l.Addr().String()})
	}
	for i, l := range listeners {
		f.start(f.peers[i].Name, l, &memoryDisk{})
	}
	t.Cleanup(func() {
		for _, m := range f.members {
			m.end()
			<-m.done
		}
	})
	return f
}

func (f *fleet) start(name string, l net.Listener, disk *memoryDisk) *member {
	f.t.Helper()
	var others []replica.Peer
	for _, p := range f.peers {
		if p.Name != name {
			others = append(others, p)
		}
	}
	m := &member{disk: disk, done: make(chan struct{}), observed: make(chan *peerv1.Observations, 100)}
	var err error
	m.Replica, err = replica.New(replica.Options{
		Group: "prod", Name: name, Version: "test", Peers: others, Disk: disk, Listener: l, Timing: timing,
		OpenEngine: func(self group.Identity) (engine.Engine, error) { return file.Open(f.dir, "prod", self) },
		Open: func(content group.Content) (any, error) {
			if text(&content) == "unreadable" {
				return nil, errors.New("of a newer version")
			}
			if text(&content) == "slow" {
				m.reads.Store(true)
				f.slow <- struct{}{}
				<-f.slow
			}
			return text(&content), nil
		},
		Observed: func(_ group.Identity, o *peerv1.Observations) { m.observed <- o },
		Log:      slog.New(slog.NewTextHandler(&f.log, nil)),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	m.end = end
	go func() {
		defer close(m.done)
		if err := m.Run(ctx); err != nil {
			f.t.Error(err)
		}
	}()
	f.members[name] = m
	return m
}

// restart starts a replica again at its address, with its disk.
func (f *fleet) restart(m *member) *member {
	f.t.Helper()
	m.end()
	<-m.done
	name := m.Self().Name
	for _, p := range f.peers {
		if p.Name != name {
			continue
		}
		l, err := net.Listen("tcp", p.Address)
		if err != nil {
			f.t.Fatal(err)
		}
		return f.start(name, l, m.disk)
	}
	f.t.Fatalf("no replica %s", name)
	return nil
}

func (f *fleet) until(what string, ok func() bool) {
	f.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if ok() {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
	for name, m := range f.members {
		f.t.Logf("%s: %+v", name, m.Status())
	}
	f.t.Fatalf("it never happened: %s", what)
}

func (f *fleet) leader() (leader *member) {
	f.t.Helper()
	f.until("one replica leads", func() bool {
		leader = nil
		for _, m := range f.members {
			if role, _ := m.Role(); role == group.Leading {
				leader = m
			}
		}
		return leader != nil
	})
	return leader
}

func (f *fleet) publish(m *member, content string) uint64 {
	f.t.Helper()
	version, err := m.Next(false)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := m.Publish(version, replica.ContentOf([]byte(content)), false); err != nil {
		f.t.Fatal(err)
	}
	return version
}

// served waits until all replicas serve the version.
func (f *fleet) served(version uint64, content string) {
	f.t.Helper()
	for name, m := range f.members {
		f.until(fmt.Sprintf("%s serves version %d", name, version), func() bool {
			s, ok := m.Served()
			return ok && s.Version == version && text(&s.Content) == content
		})
	}
}

func TestFollowersServeTheLeadersPlans(t *testing.T) {
	f := newFleet(t, 3)
	leader := f.leader()
	first := f.publish(leader, "one")
	f.served(first, "one")
	second := f.publish(leader, "two")
	f.served(second, "two")
	if second <= first {
		t.Fatalf("version %d after %d", second, first)
	}
	for name, m := range f.members {
		f.until(name+" tells what is absent", m.Removes)
		if m == leader {
			continue
		}
		if _, err := m.Next(false); !errors.Is(err, group.ErrNotLeading) {
			t.Fatalf("%s publishes: %v", name, err)
		}
		if s, _ := m.Served(); s.Opened != "two" {
			t.Fatalf("%s opened %v", name, s.Opened)
		}
	}
}

func TestLargePlans(t *testing.T) {
	f := newFleet(t, 2)
	leader := f.leader()
	large := make([]byte, 5<<20+7)
	for i := range large {
		large[i] = byte(i * i >> 7)
	}
	f.served(f.publish(leader, string(large)), string(large))
}

// TestAnotherTakesOver: a leader that ends without a word is replaced, versions grow,
// and the old leader follows when it is back.
// TestSlowReadersOfPlansHearTheLeader asserts that a leader keeps leading while followers take longer
// to read a plan than a replica may be silent.
func TestSlowReadersOfPlansHearTheLeader(t *testing.T) {
	f := newFleet(t, 3)
	leader := f.leader()
	f.served(f.publish(leader, "one"), "one")
	epoch := leader.Status().Epoch
	f.slow <- struct{}{} // readers of "slow" wait
	version, last := f.publish(leader, "slow"), "slow"
	for name, m := range f.members {
		if m != leader {
			f.until(name+" reads the plan", func() bool { return m.reads.Load() })
		}
	}
	for i := range 40 { // heartbeats
		<-time.After(timing.Heartbeat)
		if i%5 == 0 {
			last = fmt.Sprint("newer ", i)
			version = f.publish(leader, last)
		}
		if role, now := leader.Role(); role != group.Leading || now != epoch {
			t.Fatalf("the leader of epoch %d is %v of epoch %d while followers read its plan", epoch, role, now)
		}
	}
	<-f.slow
	f.served(version, last)
}

func TestAnotherTakesOver(t *testing.T) {
	f := newFleet(t, 3)
	before := f.leader()
	version := f.publish(before, "one")
	f.served(version, "one")
	before.end()
	<-before.done
	delete(f.members, before.Self().Name)
	after := f.leader()
	if base, ok := after.Base(); !ok || base.Version != version || base.Opened != "one" {
		t.Fatalf("the new leader goes on from %v", base)
	}
	next := f.publish(after, "two")
	if next < version+group.BlockSize {
		t.Fatalf("version %d after %d: not of a block of its own", next, version)
	}
	f.served(next, "two")
	f.restart(before)
	f.served(next, "two")
}

func TestLeavingHandsOver(t *testing.T) {
	f := newFleet(t, 3)
	before := f.leader()
	f.served(f.publish(before, "one"), "one")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	started := time.Now()
	before.Leave(ctx)
	f.until("another leads", func() bool {
		for _, m := range f.members {
			if role, _ := m.Role(); role == group.Leading && m != before {
				return true
			}
		}
		return false
	})
	t.Logf("another leads after %v", time.Since(started))
}

func TestStepDownOfAnyReplica(t *testing.T) {
	f := newFleet(t, 3)
	before := f.leader()
	f.served(f.publish(before, "one"), "one")
	for _, m := range f.members {
		if m == before {
			continue
		}
		if leader, err := m.StepDown("ada"); err != nil || leader != before.Self().Name {
			t.Fatalf("asked %q to step down: %v", leader, err)
		}
		break
	}
	f.until("another leads", func() bool {
		role, _ := before.Role()
		return role != group.Leading && f.leader() != before
	})
}

func TestReportsReachTheLeader(t *testing.T) {
	f := newFleet(t, 2)
	leader := f.leader()
	f.served(f.publish(leader, "one"), "one")
	for _, m := range f.members {
		if m == leader {
			continue
		}
		f.until("it knows its leader", func() bool { return m.Report([]*peerv1.Observations{{Sequence: 7}}) })
	}
	select {
	case o := <-leader.observed:
		if o.GetSequence() != 7 {
			t.Fatalf("the leader got %v", o)
		}
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
}

// TestObservationsTooLargeToSend: a message that no connection takes is left out, and what waits
// behind it reaches the leader on the same stream.
func TestObservationsTooLargeToSend(t *testing.T) {
	f := newFleet(t, 2)
	leader := f.leader()
	f.served(f.publish(leader, "one"), "one")
	list := []*peerv1.Observations{{Sequence: 1}, {Sequence: 2, Health: make([]byte, 4<<20), Last: true}, {Sequence: 3, PlanVersion: 9, Last: true}}
	for _, m := range f.members {
		if m != leader {
			f.until("it knows its leader", func() bool { return m.Report(list) })
		}
	}
	for i := range list {
		select {
		case o := <-leader.observed:
			if o.GetSequence() != list[i].GetSequence() || o.GetLast() != list[i].GetLast() || len(o.GetHealth()) > 0 {
				t.Fatalf("message %d: the leader got %d, last %v, with %d bytes of health", i, o.GetSequence(), o.GetLast(), len(o.GetHealth()))
			}
		case <-time.After(patience):
			t.Fatalf("message %d never came", list[i].GetSequence())
		}
	}
}

// TestRestartServesThePlan: a replica that starts again serves what it served, before
// anybody leads.
func TestRestartServesThePlan(t *testing.T) {
	f := newFleet(t, 1)
	m := f.leader()
	version := f.publish(m, "one")
	again := f.restart(m)
	if s, ok := again.Served(); !ok || s.Version != version || s.Opened != "one" {
		t.Fatalf("it serves %v after a restart", s)
	}
	if next := f.publish(f.leader(), "two"); next <= version {
		t.Fatalf("version %d after %d", next, version)
	}
}

// TestUnreadablePlans asserts that a plan which this version can't read is not served, and that an alarm
// tells of the newest such plan until a plan comes that can be read.
func TestUnreadablePlans(t *testing.T) {
	f := newFleet(t, 2)
	leader := f.leader()
	version := f.publish(leader, "one")
	f.served(version, "one")
	f.publish(leader, "unreadable")
	newest := f.publish(leader, "unreadable")
	for _, m := range f.members {
		if m == leader {
			continue
		}
		f.until("it alarms", func() bool {
			a := m.Status().Alarms
			return len(a) == 1 && strings.HasPrefix(a[0], fmt.Sprintf("plan %d of ", newest))
		})
		if s, _ := m.Served(); s.Version != version {
			t.Fatalf("it serves version %d", s.Version)
		}
	}
	f.served(f.publish(leader, "two"), "two")
	for _, m := range f.members {
		if a := m.Status().Alarms; len(a) > 0 {
			t.Errorf("the alarms are %q", a)
		}
	}
}

// TestStatusOfALostReplica asserts that the plan of a replica that is not heard any more
// grows older, and that an alarm which is raised again is shown once, as the newest.
func TestStatusOfALostReplica(t *testing.T) {
	f := newFleet(t, 2)
	leader := f.leader()
	f.served(f.publish(leader, "one"), "one")
	var lost *member
	for _, m := range f.members {
		if m != leader {
			lost = m
		}
	}
	name := lost.Self().Name
	f.until("the leader knows the plan of the other one", func() bool {
		s := statusOf(leader, name)
		return s.Plan > 0 && s.PlanAge > 0
	})
	lost.end()
	<-lost.done
	delete(f.members, name)
	f.until("its plan is as old as it is silent", func() bool {
		s := statusOf(leader, name)
		return !s.Live && s.Heard > 0.5 && s.PlanAge >= s.Heard
	})
	for _, text := range []string{"first", "second", "first"} {
		leader.AlarmOnce(text)
	}
	if got := leader.Status().Alarms; !slices.Equal(got[max(0, len(got)-2):], []string{"second", "first"}) || slices.Index(got, "first") != len(got)-1 {
		t.Errorf("the alarms are %q", got)
	}
}

func statusOf(m *member, name string) replica.MemberStatus {
	list := m.Status().Replicas
	i := slices.IndexFunc(list, func(s replica.MemberStatus) bool { return s.Name == name })
	return list[i]
}
