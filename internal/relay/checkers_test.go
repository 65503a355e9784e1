package relay_test

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/relay"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// manyCheckers returns what a follower with very many checkers tells.
func manyCheckers(checkers int) *here {
	much := &here{votes: []health.Report{{Checker: "checker", Service: "checkout", Locality: usA, Address: "10.0.0.1:1", Arrived: other}}}
	for i := range checkers {
		id := strings.Repeat("c", 300) + strconv.Itoa(i)
		much.connected = append(much.connected, health.Checker{ID: id, NodeID: id, Locality: usA, Since: other, LastSeen: other})
		much.ended = append(much.ended, health.Ended{Checker: id, Services: []string{strings.Repeat("s", 200)}, At: other})
	}
	return much
}

// TestManyCheckers asserts that no message of a follower with very many checkers exceeds what
// a connection takes, that the leader gets all of them, and that a list which arrives in parts
// replaces the one before only when it is complete.
func TestManyCheckers(t *testing.T) {
	const checkers = 6000
	leader, follower := newEnd(true, &here{}), newEnd(false, manyCheckers(checkers))
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

// TestCheckersForAnEarlierVersion asserts that each message of a follower with a usual number of
// checkers has all of them: an earlier version knows no parts of the list.
func TestCheckersForAnEarlierVersion(t *testing.T) {
	const checkers, votes = 1000, 40_000
	much := manyCheckers(checkers)
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

// TestCheckersOfUnreadableMessages asserts that the checkers of a replica whose states of checkers can't
// be read, or whose lists lack a part, don't count as connected for ever, though it goes on sending.
func TestCheckersOfUnreadableMessages(t *testing.T) {
	for name, data := range map[string]string{"torn": "{", "of which a part is missing": `{"part": 2, "last": true}`} {
		leader, follower := newEnd(true, &here{}), newEnd(false, reporting())
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

// TestEvictionByCheckersOfAFollower asserts that an endpoint which the checkers of a follower find
// down loses its traffic as soon as with checkers of the leader, though no two messages take
// equally long: what takes longer is neither another stream of the checkers nor their silence. An
// earlier version does not number the streams.
func TestEvictionByCheckersOfAFollower(t *testing.T) {
	t.Run("this version", func(t *testing.T) { evict(t, func(*peerv1.Observations) {}) })
	t.Run("an earlier version", func(t *testing.T) {
		number := regexp.MustCompile(`,"stream":\d+`)
		evict(t, func(o *peerv1.Observations) { o.Health = number.ReplaceAll(o.GetHealth(), nil) })
	})
}

// evict has checkers of a follower find an endpoint down. sent changes the follower's messages.
func evict(t *testing.T, sent func(*peerv1.Observations)) {
	t.Helper()
	const interval, count, down = 5 * time.Second, 4, "10.0.0.1:1"
	service := isobar.Service{Name: "checkout", HealthChecks: []isobar.HealthCheck{{
		Protocol: isobar.CheckTCP, Interval: 5 * time.Second, Timeout: time.Second, UnhealthyThreshold: 3, HealthyThreshold: 2, TCP: &isobar.TCPCheck{},
	}}}
	localities := []isobar.Locality{usA, isobar.MustLocality("us/b"), isobar.MustLocality("us/c")}
	there := &here{}
	for i, l := range localities {
		at := isobar.ServiceLocality{Locality: l}
		for j := range count {
			at.Endpoints = append(at.Endpoints, isobar.Endpoint{Address: "10.0." + strconv.Itoa(i) + "." + strconv.Itoa(j) + ":1"})
		}
		service.Localities = append(service.Localities, at)
		there.connected = append(there.connected, health.Checker{
			ID: "checker-" + l.Zone, NodeID: "checker-" + l.Zone, Locality: l, Since: other,
			Protocols: health.ProtocolsOf(isobar.CheckTCP) | health.SpeaksV3,
		})
	}
	topology := &isobar.Topology{Services: []isobar.Service{service}}
	topology.Normalize()
	leader, follower := newEnd(true, &here{}), newEnd(false, there)
	monitor := health.NewMonitor(interval, interval, health.SavedMonitor{}, clock)
	random := rand.New(rand.NewPCG(1, 2))
	told := func(after time.Duration, checkers ...health.Checker) {
		t.Helper()
		there.votes = nil
		placement := monitor.Placement()
		for _, c := range checkers {
			for _, k := range placement.Of(c.ID) {
				status := isobar.Healthy
				if k.Address == down && after > time.Minute {
					status = isobar.Unhealthy
				}
				there.votes = append(there.votes, health.Report{
					Checker: c.ID, Service: k.Service, Address: k.Address, Status: status, Arrived: other.Add(after - 20*time.Millisecond),
				})
			}
		}
		for i := range there.connected {
			there.connected[i].LastSeen = other.Add(after)
		}
		takes := time.Duration(random.Int64N(int64(20 * time.Millisecond)))
		now := clock.Add(after + takes)
		for _, o := range follower.Observations(other.Add(after), true, false) {
			sent(o)
			if err := leader.Receive("b", 1, o, now); err != nil {
				t.Fatal(err)
			}
		}
		monitor.Observe(health.Event{Now: now, Topology: topology, Reports: leader.Votes(now), Connected: leader.Connected(now)})
	}
	for after := time.Second; after < 2*time.Minute; after += interval {
		for i, c := range there.connected { // one after the other, as they report
			told(after+time.Duration(i)*time.Second, c)
		}
		status := isobar.Unknown
		for _, v := range monitor.VerdictTable().Explain("checkout") {
			if v.Address == down {
				status = v.Status
			}
		}
		if want := isobar.Healthy; after > 10*time.Second && after < time.Minute && status != want {
			t.Fatalf("after %v %s is %v, want %v", after, down, status, want)
		}
		if want := isobar.Unhealthy; after > time.Minute+2*interval && status != want {
			t.Fatalf("%v after all checkers found it down, %s is %v, want %v", after-time.Minute, down, status, want)
		}
	}
}

// TestCheckerThatMoved asserts that a checker which comes to another replica counts by its newest
// stream, though the replica that it left may have died and still counts as having it.
func TestCheckerThatMoved(t *testing.T) {
	for _, moves := range [][]string{{"b", "c"}, {"c", "b"}, {"b", "a"}, {"a", "b"}} {
		own := &here{}
		leader := newEnd(true, own)
		for i, to := range moves {
			since := time.Duration(i) * time.Minute
			told := []health.Checker{{ID: "checker", Since: clock.Add(since)}}
			if to == "a" {
				own.connected = told
				continue
			}
			for _, o := range newEnd(false, &here{connected: told}).Observations(clock.Add(time.Minute), true, false) {
				if err := leader.Receive(to, 1, o, clock.Add(time.Minute)); err != nil {
					t.Fatal(err)
				}
			}
		}
		got := leader.Connected(clock.Add(time.Minute))
		if len(got) != 1 || !got[0].Since.Equal(clock.Add(time.Minute)) {
			t.Errorf("moved along %v: %+v", moves, got)
		}
	}
}
