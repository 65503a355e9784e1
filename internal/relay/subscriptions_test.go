package relay_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/relay"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// TestSubscriptionsOfABrokenConnection asserts that a list of subscriptions which a connection took
// in part is not counted with the next one, whichever part is missing.
func TestSubscriptionsOfABrokenConnection(t *testing.T) {
	const names = 5000
	much := manySubscriptions(names)
	leader, follower := newEnd(true, &here{}), newEnd(false, much)
	for _, missing := range []struct{ from, to int }{{0, 0}, {0, 1}, {1, 2}, {2, 100}, {4, 100}, {0, 0}} {
		told := follower.Observations(other, false, false)
		if len(told) < 5 {
			t.Fatalf("%d messages", len(told))
		}
		for _, o := range slices.Delete(told, missing.from, min(missing.to, len(told))) {
			if err := leader.Receive("b", 1, o, clock); err != nil {
				t.Fatal(err)
			}
		}
		if n := counted(leader); n != names {
			t.Errorf("after messages %d to %d got lost, the leader counts %d streams", missing.from, missing.to, n)
		}
	}
	// The list after one that was broken off may lack its beginning as far as the leader can tell.
	pass(t, follower, leader, 1, other, clock)
	much.subscribed = much.subscribed[:10]
	pass(t, follower, leader, 1, other, clock)
	if n := counted(leader); n != 10 {
		t.Errorf("after the next whole list the leader counts %d streams", n)
	}
}

// manySubscriptions returns what a follower tells whose list of subscriptions takes several messages.
func manySubscriptions(streams int) *here {
	much := &here{}
	for i := range streams {
		much.subscribed = append(much.subscribed, load.Subscription{Source: usA, Service: strings.Repeat("n", 1000) + strconv.Itoa(i), Streams: 1})
	}
	return much
}

// counted returns how many streams subscribe, as far as a leader knows.
func counted(leader *end) (n int) {
	for _, s := range leader.Subscriptions() {
		n += s.Streams
	}
	return n
}

// TestBadPartOfAMessage asserts that a part of a message which can't be read costs that part only:
// subscriptions count though load reports or states of checkers are bad, and a list of subscriptions
// with a bad one does not take the next list with it, whichever message it is in.
func TestBadPartOfAMessage(t *testing.T) {
	const names = 5000
	long := strings.Repeat("x", 5000)
	for name, c := range map[string]struct {
		harm   func(o *peerv1.Observations)
		counts bool // the list of which the message is a part
	}{
		"windows":  {func(o *peerv1.Observations) { o.Windows = []*peerv1.StreamWindow{{NodeId: long}} }, true},
		"checkers": {func(o *peerv1.Observations) { o.Health = []byte("{") }, true},
		"subscriptions": {func(o *peerv1.Observations) {
			o.Subscriptions = append(o.Subscriptions, &peerv1.Subscription{Service: long})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, index := range []int{0, 2, -1} {
				much := manySubscriptions(names)
				leader, follower := newEnd(true, &here{}), newEnd(false, much)
				pass(t, follower, leader, 1, other, clock)
				much.subscribed = much.subscribed[:names-1]
				told := follower.Observations(other, false, false)
				index = (index + len(told)) % len(told)
				c.harm(told[index])
				for i, o := range told {
					if err := leader.Receive("b", 1, o, clock); (err != nil) != (i == index) {
						t.Fatalf("message %d: %v", i, err)
					}
				}
				if n := counted(leader); (n == names-1) != c.counts || n < names-1 {
					t.Errorf("message %d is bad: the leader counts %d streams", index, n)
				}
				much.subscribed = much.subscribed[:names-2]
				pass(t, follower, leader, 1, other, clock)
				if n := counted(leader); n != names-2 {
					t.Errorf("message %d was bad: the leader counts %d streams of the next list", index, n)
				}
			}
		})
	}
}

// TestSubscriptionsOfWhichANewLeaderMissedTheFirst asserts that a replica which becomes the leader
// while a list arrives does not take the rest of it for all subscriptions, unless a follower of an
// earlier version sends it, which numbers no parts.
func TestSubscriptionsOfWhichANewLeaderMissedTheFirst(t *testing.T) {
	const names = 5000
	for _, numbered := range []bool{true, false} {
		leader, follower := newEnd(false, &here{}), newEnd(false, manySubscriptions(names))
		tell := func(missed int) {
			for i, o := range follower.Observations(other, false, false) {
				if leader.leading = leader.leading || i >= missed; !numbered {
					o.Part = 0
				}
				if err := leader.Receive("b", 1, o, clock); err != nil {
					t.Fatal(err)
				}
			}
		}
		tell(2)
		if n := counted(leader); (n == 0) != numbered {
			t.Errorf("numbered: %t; without two parts the leader counts %d streams", numbered, n)
		}
		tell(0)
		if n := counted(leader); n != names {
			t.Errorf("numbered: %t; the leader counts %d streams of the next list", numbered, n)
		}
	}
}

// TestManyStreamsWithLongNames asserts that no message of a follower with streams of very long
// node names exceeds what a connection takes.
func TestManyStreamsWithLongNames(t *testing.T) {
	const streams = 1000
	much := &here{}
	for i := range streams {
		much.windows = append(much.windows, load.StreamWindow{
			Stream: load.StreamID(i + 1), Node: load.Node{ID: strings.Repeat("i", 4000), Cluster: strings.Repeat("c", 4000), Locality: usA}, Opened: other,
		})
	}
	leader, follower := newEnd(true, &here{}), newEnd(false, much)
	for _, o := range follower.Observations(other, false, false) {
		if size := proto.Size(o); size > 2<<20 {
			t.Errorf("a message has %d bytes", size)
		}
	}
	pass(t, follower, leader, 1, other, clock)
	if got := leader.Windows(clock); len(got) != streams {
		t.Errorf("the leader got %d streams", len(got))
	}
}

// TestSubscriptionsOfSeveralReplicas asserts that a locality counts as acknowledged only
// once all replicas say so, and not by what a replica that is behind says.
func TestSubscriptionsOfSeveralReplicas(t *testing.T) {
	at := clock.Add(-time.Second)
	leader := newEnd(true, &here{subscribed: []load.Subscription{{Source: usA, Service: "checkout", Streams: 1, Acked: 1, AckedAt: at}}})
	follower := newEnd(false, reporting())
	pass(t, follower, leader, 1, other, clock)
	if s := leader.Subscriptions(); len(s) != 1 || s[0].Streams != 3 || s[0].Acked != 3 || !s[0].AckedAt.Equal(at) {
		t.Errorf("subscriptions %+v", s)
	}
	// What a replica says of its checkers between two lists does not make the list newer.
	leader.version, follower.version = 8, 8
	for _, o := range follower.Observations(other, true, false) {
		if err := leader.Receive("b", 1, o, clock); err != nil {
			t.Fatal(err)
		}
	}
	if s := leader.Subscriptions(); len(s) != 1 || s[0].Streams != 3 || !s[0].AckedAt.IsZero() {
		t.Errorf("subscriptions listed with the plan before %+v", s)
	}
	follower.version = 7
	pass(t, follower, leader, 1, other, clock)
	if s := leader.Subscriptions(); len(s) != 1 || s[0].Streams != 3 || !s[0].AckedAt.IsZero() {
		t.Errorf("subscriptions with a follower behind %+v", s)
	}
}

// TestStreamsOfARemovedReplica asserts that its streams stay open while its clients
// may come to another replica, and end then; and at once when it returns as another
// process.
func TestStreamsOfARemovedReplica(t *testing.T) {
	leader, follower := newEnd(true, &here{}), newEnd(false, reporting())
	pass(t, follower, leader, 1, other, clock)
	first := leader.Windows(clock)
	if w := leader.Windows(clock.Add(relay.ReplicaGone)); len(w) != 0 {
		t.Fatalf("its streams ended too soon: %+v", w)
	}
	if k := leader.Connected(clock.Add(relay.CheckersHeld + time.Second)); len(k) != 0 {
		t.Errorf("its checkers count as connected: %+v", k)
	}
	pass(t, follower, leader, 2, other, clock) // restarted: the same id is another stream
	w := leader.Windows(clock)
	if len(w) != 2 || w[0].Stream != first[0].Stream || w[0].Closed.IsZero() || w[1].Stream == first[0].Stream || !w[1].Closed.IsZero() {
		t.Fatalf("after its restart: %+v", w)
	}
	late := clock.Add(relay.ReplicaGone + time.Second)
	if last := leader.Windows(late); len(last) != 1 || last[0].Stream != w[1].Stream || !last[0].Closed.Equal(late) {
		t.Errorf("its streams did not end: %+v", last)
	}
}

// TestAcknowledgedUnderALaterPlan asserts that what the clients of a follower acknowledged stands while
// plans change other services only: where endpoints come and go all the time, a leader would else
// never see an acknowledgement.
func TestAcknowledgedUnderALaterPlan(t *testing.T) {
	service := func(name string) *plan.Service { return &plan.Service{Spec: &isobar.Service{Name: name}} }
	checkout, cart := service("checkout"), service("cart")
	builder, before := view.NewBuilder(view.Options{}), (*view.Set)(nil)
	topology := &isobar.Topology{}
	leader, follower := newEnd(true, &here{}), newEnd(false, reporting())
	for _, step := range []struct {
		what     string
		services []*plan.Service
		told     bool // the follower has the plan, and lists its subscriptions
		dead     bool // the follower is not heard
		want     bool // that of checkout is acknowledged
	}{
		{"a plan that the follower has", []*plan.Service{cart, checkout}, true, false, true},
		{"another service changed", []*plan.Service{service("cart"), checkout}, false, false, true},
		{"another service is gone", []*plan.Service{checkout}, false, false, true},
		{"the follower is not heard", nil, false, true, false},
		{"the follower is heard again", nil, false, false, true},
		{"the service changed", []*plan.Service{service("checkout")}, false, false, false},
		{"the follower has that", nil, true, false, true},
	} {
		if step.services != nil {
			leader.version++
			p := &plan.Plan{Version: leader.version, Topology: topology, Services: step.services}
			before = builder.Build(p, before)
			leader.Publish(before)
		}
		if follower.version = leader.version; step.told {
			pass(t, follower, leader, 1, other, clock)
		}
		if leader.dead = ""; step.dead {
			leader.dead = "b"
		}
		leader.Windows(clock)
		if s := leader.Subscriptions(); len(s) != 1 || s[0].AckedAt.IsZero() == step.want {
			t.Errorf("%s: %+v", step.what, s)
		}
	}
}
