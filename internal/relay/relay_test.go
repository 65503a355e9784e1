package relay_test

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/relay"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// here holds what the clients and checkers of one replica report.
type here struct {
	windows    []load.StreamWindow
	subscribed []load.Subscription
	votes      []health.Report
	connected  []health.Checker
	ended      []health.Ended
	changed    chan struct{}
}

func (h *here) Publish(*view.Set)                  { /* not observed */ }
func (h *here) Subscriptions() []load.Subscription { return h.subscribed }

type reports struct{ *here }

func (r reports) Collect(time.Time) []load.StreamWindow { return r.windows }
func (r reports) Release()                              {}

type checkers struct{ *here }

func (c checkers) Collect(time.Time) []health.Report                { return c.votes }
func (c checkers) Connected(time.Time) []health.Checker             { return c.connected }
func (c checkers) Ended() []health.Ended                            { return c.ended }
func (c checkers) Designate(*isobar.Topology, []health.Designation) { /* not observed */ }
func (c checkers) Changed() <-chan struct{}                         { return c.changed }

// tick is the time between two decisions.
const tick = 2 * time.Second

// end is one replica: leading is whether it decides, and version that of its plan.
type end struct {
	*relay.Relay

	here    *here
	leading bool
	version uint64
	tick    time.Duration
	dead    string // a replica that is not heard
}

func (e *end) Leads() bool              { return e.leading }
func (e *end) Version() uint64          { return e.version }
func (e *end) Tick() time.Duration      { return e.tick }
func (e *end) Live(replica string) bool { return replica != e.dead }

func newEnd(leading bool, h *here) *end {
	e := &end{here: h, leading: leading, version: 7, tick: tick}
	e.Relay = relay.New(reports{h}, h, checkers{h}, e)
	return e
}

// pass encodes the observations of a follower, and gives them to the leader. Their clocks differ.
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

// reporting returns what one client and one checker of a follower report.
func reporting() *here {
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
		subscribed: []load.Subscription{{Source: usA, Service: "checkout", Streams: 2, Acked: 2, AckedAt: other.Add(-3 * time.Second)}},
		connected:  []health.Checker{{ID: "checker", Locality: usA, Since: other.Add(-time.Minute), LastSeen: other.Add(-time.Second)}},
	}
}

// TestFollowersReportsReachTheLeader asserts that the leader sees each report, subscription
// and checker of a follower as if it were its own, whatever the follower's clock says.
func TestFollowersReportsReachTheLeader(t *testing.T) {
	leader, follower := newEnd(true, &here{}), newEnd(false, reporting())
	pass(t, follower, leader, 1, other, clock)

	got, want := leader.Windows(clock), reporting().windows
	if len(got) != 1 || got[0].Stream < 1<<62 {
		t.Fatalf("the leader has %+v", got)
	}
	want[0].Stream, want[0].Delay = got[0].Stream, tick
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

// TestFollowersTakeNothing asserts that a replica which does not lead keeps nothing of
// others.
func TestFollowersTakeNothing(t *testing.T) {
	a, b := newEnd(false, &here{}), newEnd(false, reporting())
	pass(t, b, a, 1, other, clock)
	if w := a.Windows(clock); len(w) != 0 {
		t.Errorf("it has %+v", w)
	}
}

// FuzzReceive asserts that no message of another replica panics, and that what is taken
// can be collected, also of a message that is bad in part.
func FuzzReceive(f *testing.F) {
	for _, o := range newEnd(false, reporting()).Observations(other, false, true) {
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
