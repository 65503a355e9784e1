package relay_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/relay"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// here is what the clients and checkers of one replica tell.
type here struct {
	windows    []load.StreamWindow
	subscribed []xds.Subscription
	votes      []health.Report
	connected  []health.Checker
	ended      []health.Ended
	changed    chan struct{}
}

func (h *here) Publish(*view.Set)                 { /* nobody listens */ }
func (h *here) Subscriptions() []xds.Subscription { return h.subscribed }

type reports struct{ *here }

func (r reports) Collect(time.Time) []load.StreamWindow { return r.windows }

type checkers struct{ *here }

func (c checkers) Collect(time.Time) []health.Report                { return c.votes }
func (c checkers) Connected(time.Time) []health.Checker             { return c.connected }
func (c checkers) Ended() []health.Ended                            { return c.ended }
func (c checkers) Designate(*isobar.Topology, []health.Designation) { /* nobody listens */ }
func (c checkers) Changed() <-chan struct{}                         { return c.changed }

// end is one replica: leading is whether it decides, and version that of its plan.
type end struct {
	*relay.Relay

	here    *here
	leading bool
	version uint64
}

func newEnd(leading bool, h *here) *end {
	e := &end{here: h, leading: leading, version: 7}
	e.Relay = relay.New(reports{h}, h, checkers{h}, func() bool { return e.leading }, func() uint64 { return e.version })
	return e
}

// pass brings what a follower tells to the leader, as bytes. Their clocks differ.
func pass(t *testing.T, from, to *end, incarnation uint64, now, then time.Time) {
	t.Helper()
	for _, o := range from.Observations(now, false, false) {
		data, err := proto.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var read peerv1.Observations
		if err := proto.Unmarshal(data, &read); err != nil {
			t.Fatal(err)
		}
		if err := to.Receive("b", incarnation, &read, then); err != nil {
			t.Fatal(err)
		}
	}
}

var (
	usA   = isobar.MustLocality("us/a")
	clock = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC) // the leader's
	other = clock.Add(-time.Hour)                       // the follower's is an hour behind
)

// told is what a follower's one client and one checker tell.
func told() *here {
	return &here{
		windows: []load.StreamWindow{{
			Stream: 3, Node: load.Node{ID: "client", Cluster: "web", Locality: usA, Agent: load.AgentGRPC}, Account: "x", Identified: true,
			Opened: other.Add(-time.Minute),
			Reports: []load.Report{{Arrived: other.Add(-time.Second), Services: []load.ServiceReport{{
				Service: "checkout", Interval: 2 * time.Second, Dropped: 4, DroppedBy: []load.DropCount{{Category: "isobar_overload", Count: 4}},
				Localities: []load.LocalityReport{{
					Locality: &usA, Issued: 10, Succeeded: 8, Errors: 1, InProgress: 2, Priority: 1, HasIssued: true,
					Details: &load.LocalityDetails{
						Metrics:   []load.MetricSum{{Name: "cpu", Requests: 5, Total: 2.5}},
						Endpoints: []load.EndpointReport{{Address: "10.0.0.1:1", Issued: 10, Succeeded: 8, Errors: 1, InProgress: 2}},
					},
				}},
			}}}},
		}},
		subscribed: []xds.Subscription{{Locality: usA, Service: "checkout", Streams: 2, Acked: 2, AckedAt: other.Add(-3 * time.Second)}},
		connected:  []health.Checker{{ID: "checker", Locality: usA, Since: other.Add(-time.Minute), LastSeen: other.Add(-time.Second)}},
	}
}

// TestFollowersReportsReachTheLeader asserts that the leader sees each report, subscription
// and checker of a follower as if it were its own, whatever the follower's clock says.
func TestFollowersReportsReachTheLeader(t *testing.T) {
	leader, follower := newEnd(true, &here{}), newEnd(false, told())
	pass(t, follower, leader, 1, other, clock)

	got, want := leader.Windows(clock), told().windows
	if len(got) != 1 || got[0].Stream < 1<<62 {
		t.Fatalf("the leader has %+v", got)
	}
	want[0].Stream = got[0].Stream
	want[0].Opened, want[0].Reports[0].Arrived = clock.Add(-time.Minute), clock.Add(-time.Second)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if again := leader.Windows(clock); len(again) != 0 {
		t.Errorf("reports count twice: %+v", again)
	}
	s := leader.Subscriptions()
	if len(s) != 1 || s[0].Streams != 2 || !s[0].AckedAt.Equal(clock.Add(-3*time.Second)) {
		t.Errorf("subscriptions %+v", s)
	}
	k := leader.Connected(clock)
	if len(k) != 1 || k[0].ID != "checker" || !k[0].Since.Equal(clock.Add(-time.Minute)) || !k[0].LastSeen.Equal(clock.Add(-time.Second)) {
		t.Errorf("checkers %+v", k)
	}
}

// TestMuchToTell asserts that no message of a follower with many clients and checkers exceeds
// what a connection takes, and that the leader gets all of it.
func TestMuchToTell(t *testing.T) {
	const streams, reports, votes = 5, 6, 40_000
	large := load.Report{Arrived: other.Add(-time.Second)}
	for i := range 1000 {
		large.Services = append(large.Services, load.ServiceReport{Service: strings.Repeat("s", 500) + strconv.Itoa(i), Interval: time.Second})
	}
	much := &here{}
	for i := range streams {
		much.windows = append(much.windows, load.StreamWindow{
			Stream: load.StreamID(i + 1), Node: load.Node{ID: "client", Locality: usA}, Opened: other.Add(-time.Minute), Closed: other,
			Reports: slices.Repeat([]load.Report{large}, reports),
		})
	}
	for i := range votes {
		much.votes = append(much.votes, health.Report{Checker: "checker", Service: "checkout", Locality: usA, Address: "10.0.0.1:" + strconv.Itoa(i), Arrived: other})
	}
	leader, follower := newEnd(true, &here{}), newEnd(false, much)
	for _, o := range follower.Observations(other, false, false) {
		if size := proto.Size(o); size > 2<<20 {
			t.Errorf("a message has %d bytes", size)
		}
	}
	pass(t, follower, leader, 1, other, clock)
	got := leader.Windows(clock)
	if len(got) != streams {
		t.Fatalf("the leader got %d streams", len(got))
	}
	for _, w := range got {
		if len(w.Reports) != reports || !w.Closed.Equal(clock) {
			t.Errorf("a stream has %d reports, closed at %v", len(w.Reports), w.Closed)
		}
	}
	if got := leader.Votes(clock); len(got) != votes {
		t.Errorf("the leader got %d votes", len(got))
	}
}

// TestLongNamesToTell asserts that no message of a follower whose clients subscribe to very long
// names exceeds what a connection takes, and that the leader gets all of them.
func TestLongNamesToTell(t *testing.T) {
	const names = 5000
	long := strings.Repeat("z", 253)
	much := &here{}
	for i := range names {
		much.subscribed = append(much.subscribed, xds.Subscription{
			Locality: isobar.Locality{Region: long, Zone: long, SubZone: long}, Service: strings.Repeat("n", 200) + strconv.Itoa(i), Streams: 1,
		})
	}
	leader, follower := newEnd(true, &here{}), newEnd(false, much)
	for _, o := range follower.Observations(other, false, false) {
		if size := proto.Size(o); size > 2<<20 {
			t.Errorf("a message has %d bytes", size)
		}
	}
	pass(t, follower, leader, 1, other, clock)
	if got := leader.Subscriptions(); len(got) != names {
		t.Errorf("the leader got %d subscriptions", len(got))
	}
}

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
		much.subscribed = append(much.subscribed, xds.Subscription{Locality: usA, Service: strings.Repeat("n", 1000) + strconv.Itoa(i), Streams: 1})
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

// crowd returns what a follower with very many checkers tells.
func crowd(checkers int) *here {
	much := &here{votes: []health.Report{{Checker: "checker", Service: "checkout", Locality: usA, Address: "10.0.0.1:1", Arrived: other}}}
	for i := range checkers {
		id := strings.Repeat("c", 300) + strconv.Itoa(i)
		much.connected = append(much.connected, health.Checker{ID: id, NodeID: id, Locality: usA, Since: other, LastSeen: other})
		much.ended = append(much.ended, health.Ended{Checker: id, Services: []string{strings.Repeat("s", 200)}, At: other})
	}
	return much
}

// TestManyCheckersToTell asserts that no message of a follower with very many checkers exceeds what
// a connection takes, that the leader gets all of them, and that a list which arrives in parts
// replaces the one before only when it is complete.
func TestManyCheckersToTell(t *testing.T) {
	const checkers = 6000
	leader, follower := newEnd(true, &here{}), newEnd(false, crowd(checkers))
	told := follower.Observations(other, true, false)
	for _, o := range told {
		if size := proto.Size(o); size > 2<<20 {
			t.Errorf("a message has %d bytes", size)
		}
	}
	receive := func(list []*peerv1.Observations) {
		t.Helper()
		for _, o := range list {
			if err := leader.Receive("b", 1, o, clock); err != nil {
				t.Fatal(err)
			}
		}
	}
	receive(told)
	if got := leader.Connected(clock); len(got) != checkers {
		t.Errorf("the leader has %d checkers", len(got))
	}
	if ended, votes := len(leader.Ended()), len(leader.Votes(clock)); ended != checkers || votes != 1 {
		t.Errorf("the leader got %d ends and %d votes", ended, votes)
	}
	follower.here.connected = follower.here.connected[:checkers-1]
	told = follower.Observations(other, true, false)
	receive(slices.Delete(slices.Clone(told), 1, 2))
	if got := leader.Connected(clock); len(got) != checkers {
		t.Errorf("a list without its second part left %d checkers", len(got))
	}
	receive(told[:len(told)-1])
	if got := leader.Connected(clock); len(got) != checkers {
		t.Errorf("a list without its last part left %d checkers", len(got))
	}
	receive(told)
	if got := leader.Connected(clock); len(got) != checkers-1 {
		t.Errorf("the leader has %d checkers after another list", len(got))
	}
	follower.here.connected = nil
	receive(follower.Observations(other, true, false))
	if got := leader.Connected(clock); len(got) != 0 {
		t.Errorf("the leader has %d checkers after an empty list", len(got))
	}
}

// TestCheckersToTellAnEarlierVersion asserts that each message of a follower with a usual number of
// checkers has all of them: an earlier version knows no parts of the list.
func TestCheckersToTellAnEarlierVersion(t *testing.T) {
	const checkers, votes = 1000, 40_000
	much := crowd(checkers)
	much.votes = slices.Repeat(much.votes, votes)
	told := newEnd(false, much).Observations(other, true, false)
	if len(told) < 2 {
		t.Fatalf("%d messages", len(told))
	}
	for _, o := range told {
		var got struct {
			Connected []json.RawMessage `json:"connected"`
			Part      *int              `json:"part"`
		}
		if err := json.Unmarshal(o.GetHealth(), &got); err != nil || len(got.Connected) != checkers || got.Part != nil {
			t.Errorf("a message has %d checkers, part %v: %v", len(got.Connected), got.Part, err)
		}
	}
}

// TestReportTooLargeToTell asserts that a load report which no connection takes is alone in its
// message, so that the leader gets everything else: other reports of the same client, those of
// other clients, and the end of the stream.
func TestReportTooLargeToTell(t *testing.T) {
	const most = 4 << 20
	small := load.Report{Arrived: other, Services: []load.ServiceReport{{Service: "checkout", Interval: time.Second}}}
	large := load.Report{Arrived: other}
	for i := range 400 {
		s := load.ServiceReport{Service: "s" + strconv.Itoa(i), Interval: time.Second}
		for j := range 1000 {
			s.Localities = append(s.Localities, load.LocalityReport{Locality: &isobar.Locality{Region: "r" + strconv.Itoa(j)}, Issued: 1, HasIssued: true})
		}
		large.Services = append(large.Services, s)
	}
	node := load.Node{ID: "client", Locality: usA}
	much := &here{windows: []load.StreamWindow{
		{Stream: 1, Node: node, Opened: other, Reports: []load.Report{small}},
		{Stream: 2, Node: node, Opened: other, Closed: other, Reports: []load.Report{small, large, small}},
		{Stream: 3, Node: node, Opened: other, Closed: other, Reports: []load.Report{large}},
		{Stream: 4, Node: node, Opened: other, Reports: []load.Report{small}},
	}}
	leader, left := newEnd(true, &here{}), 0
	for _, o := range newEnd(false, much).Observations(other, false, false) {
		if proto.Size(o) > most {
			left++
			continue
		}
		if err := leader.Receive("b", 1, o, clock); err != nil {
			t.Fatal(err)
		}
	}
	if left != 2 {
		t.Errorf("%d messages can't be sent, want those of the two large reports", left)
	}
	var reports []int
	var closed []bool
	for _, w := range leader.Windows(clock) {
		reports, closed = append(reports, len(w.Reports)), append(closed, !w.Closed.IsZero())
	}
	if !slices.Equal(reports, []int{1, 2, 0, 1}) || !slices.Equal(closed, []bool{false, true, true, false}) {
		t.Errorf("the streams have %v reports, and are closed: %v", reports, closed)
	}
}

// TestSubscriptionsOfSeveralReplicas asserts that a locality counts as acknowledged only
// once all replicas say so, and not by what a replica that is behind says.
func TestSubscriptionsOfSeveralReplicas(t *testing.T) {
	at := clock.Add(-time.Second)
	leader := newEnd(true, &here{subscribed: []xds.Subscription{{Locality: usA, Service: "checkout", Streams: 1, Acked: 1, AckedAt: at}}})
	follower := newEnd(false, told())
	pass(t, follower, leader, 1, other, clock)
	if s := leader.Subscriptions(); len(s) != 1 || s[0].Streams != 3 || s[0].Acked != 3 || !s[0].AckedAt.Equal(at) {
		t.Errorf("subscriptions %+v", s)
	}
	leader.version = 8 // the follower has 7
	if s := leader.Subscriptions(); len(s) != 1 || s[0].Streams != 3 || !s[0].AckedAt.IsZero() {
		t.Errorf("subscriptions with a follower behind %+v", s)
	}
}

// TestStreamsOfAReplicaThatIsGone asserts that its streams stay open while its clients
// may come to another replica, and end then; and at once when it returns as another
// process.
func TestStreamsOfAReplicaThatIsGone(t *testing.T) {
	leader, follower := newEnd(true, &here{}), newEnd(false, told())
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

// TestCheckersOfUnreadableMessages asserts that the checkers of a replica whose states of checkers can't
// be read, or whose lists lack a part, don't count as connected for ever, though it goes on sending.
func TestCheckersOfUnreadableMessages(t *testing.T) {
	for name, data := range map[string]string{"torn": "{", "of which a part is missing": `{"part": 2, "last": true}`} {
		leader, follower := newEnd(true, &here{}), newEnd(false, told())
		pass(t, follower, leader, 1, other, clock)
		for second := range 60 {
			now := clock.Add(time.Duration(second) * time.Second)
			_ = leader.Receive("b", 1, &peerv1.Observations{Health: []byte(data)}, now)
			if got := len(leader.Connected(now)); (got == 1) != (now.Sub(clock) <= relay.CheckersHeld) {
				t.Fatalf("a list %s: after %d s %d checkers count as connected", name, second, got)
			}
		}
	}
}

// TestNewLeaderStartsWarm asserts that a new leader gets what the clients of followers, and
// its own, reported at the last six calls, each report once and with its age.
func TestNewLeaderStartsWarm(t *testing.T) {
	at := func(seconds int) *here {
		h := told()
		h.windows[0].Reports[0].Arrived = other.Add(time.Duration(seconds) * time.Second)
		return h
	}
	follower, next := newEnd(false, told()), newEnd(false, told())
	for second := range 8 { // nobody leads
		*follower.here, *next.here = *at(second), *at(second)
		now := other.Add(time.Duration(second) * time.Second)
		follower.Observations(now, false, false)
		next.Observations(now, false, false)
	}
	next.leading = true
	*follower.here, *next.here = *at(8), *at(8)
	now := other.Add(8 * time.Second)
	for _, o := range follower.Observations(now, false, true) {
		if err := next.Receive("b", 1, o, clock.Add(8*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	got := next.Windows(now)
	if len(got) != 2 {
		t.Fatalf("the leader has %d streams, want 2: %+v", len(got), got)
	}
	for i, w := range got {
		from := other // of the leader's own client
		if w.Stream > 1<<62 {
			from = clock
		} else if w.Stream != 3 {
			t.Errorf("its own stream has the id %d", w.Stream)
		}
		if len(w.Reports) != 7 || !w.Opened.Equal(from.Add(-time.Minute)) {
			t.Fatalf("stream %d: %d reports, opened %v; want six and one of now", i, len(w.Reports), w.Opened)
		}
		for n, r := range w.Reports {
			if want := from.Add(time.Duration(n+2) * time.Second); !r.Arrived.Equal(want) || len(r.Services) != 1 || r.Services[0].Dropped != 4 {
				t.Errorf("stream %d, report %d arrived at %v, want %v: %+v", i, n, r.Arrived, want, r)
			}
		}
	}
	*next.here = *at(9)
	if w := next.Windows(now.Add(time.Second)); len(w) != 1 || len(w[0].Reports) != 1 {
		t.Errorf("the second call has %+v", w)
	}
	// What a leader collected is what the next one gets of it.
	next.leading = false
	*next.here = *at(10)
	reports := 0
	for _, o := range next.Observations(now.Add(2*time.Second), false, true) {
		for _, w := range o.GetWindows() {
			reports += len(w.GetReports())
		}
	}
	if reports != 7 {
		t.Errorf("a leader that stepped down tells %d reports, want 7", reports)
	}
}

// TestFollowersTakeNothing asserts that a replica which does not lead keeps nothing of
// others.
func TestFollowersTakeNothing(t *testing.T) {
	a, b := newEnd(false, &here{}), newEnd(false, told())
	pass(t, b, a, 1, other, clock)
	if w := a.Windows(clock); len(w) != 0 {
		t.Errorf("it has %+v", w)
	}
}

// FuzzReceive asserts that no message of another replica panics, and that what is taken
// can be collected, also of a message that is bad in part.
func FuzzReceive(f *testing.F) {
	for _, o := range newEnd(false, told()).Observations(other, false, true) {
		data, err := proto.Marshal(o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(_ *testing.T, data []byte) {
		var o peerv1.Observations
		if proto.Unmarshal(data, &o) != nil {
			return
		}
		leader := newEnd(true, &here{})
		_ = leader.Receive("b", 1, &o, clock) // what is wrong was dropped
		leader.Windows(clock)
		leader.Subscriptions()
		leader.Votes(clock)
		leader.Connected(clock)
		leader.Ended()
		leader.Windows(clock.Add(time.Hour))
	})
}
