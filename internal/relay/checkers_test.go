package relay_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

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
