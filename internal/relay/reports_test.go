package relay_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// TestLongNamesInReports asserts that no message of a follower whose clients subscribe to very long
// names exceeds what a connection takes, and that the leader gets all of them.
func TestLongNamesInReports(t *testing.T) {
	const names = 5000
	long := strings.Repeat("z", 253)
	much := &here{}
	for i := range names {
		much.subscribed = append(much.subscribed, load.Subscription{
			Source: isobar.Locality{Region: long, Zone: long, SubZone: long}, Service: strings.Repeat("n", 200) + strconv.Itoa(i), Streams: 1,
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

// TestNewLeaderStartsWarm asserts that a new leader gets what the clients of followers, and
// its own, reported at the last six calls, each report once and with its age.
func TestNewLeaderStartsWarm(t *testing.T) {
	at := func(seconds int) *here {
		h := reporting()
		h.windows[0].Reports[0].Arrived = other.Add(time.Duration(seconds) * time.Second)
		return h
	}
	follower, next := newEnd(false, reporting()), newEnd(false, reporting())
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

// TestReportsInEachPhase asserts that no client of a follower counts as silent while it reports, whenever
// it does between two ticks of its replica, whenever that one ticks between two ticks of the leader, and
// however long ticks and report intervals are: it would hold all weights, or slow them down.
func TestReportsInEachPhase(t *testing.T) {
	const phases = 8
	for _, test := range []struct{ tick, interval time.Duration }{
		{time.Second, time.Second}, {5 * time.Second, time.Second}, {time.Second, 5 * time.Second}, {5 * time.Second, 5 * time.Second},
		{30 * time.Second, 5 * time.Second}, {5 * time.Second, time.Minute}, {5 * time.Minute, 5 * time.Minute},
	} {
		for i := range phases * phases {
			ticks, reports := test.tick*time.Duration(i/phases)/phases, test.interval*time.Duration(i%phases)/phases
			if stale := reportsInPhase(t, test.tick, test.interval, ticks, reports); stale > 0 {
				t.Errorf("tick %v, reports each %v, the follower ticks %v after the leader, the client reports after %v: %v of the demand is stale",
					test.tick, test.interval, ticks, reports, stale)
				break
			}
		}
	}
}

// reportsInPhase has a client of a follower report for a while, and returns which part of the demand
// counted as stale at most.
func reportsInPhase(t *testing.T, tick, interval, ticks, reports time.Duration) (stale float64) {
	t.Helper()
	there := reporting()
	report := there.windows[0].Reports[0]
	report.Services[0].Interval = interval
	leader, follower := newEnd(true, &here{}), newEnd(false, there)
	leader.tick, follower.tick = tick, tick
	table := load.NewTable(load.Settings{Interval: interval}, nil, clock)
	steps := int(12 * max(tick, interval) / tick)
	for step := range steps {
		leads, follows := time.Duration(step+1)*tick, time.Duration(step)*tick+ticks
		there.windows[0].Reports = nil
		for at := reports; at <= follows; at += interval {
			if at > follows-tick {
				report.Arrived = other.Add(at)
				there.windows[0].Reports = append(there.windows[0].Reports, report)
			}
		}
		pass(t, follower, leader, 1, other.Add(follows), clock.Add(follows))
		now := clock.Add(leads)
		table.Merge(leader.Windows(now))
		table.SetSubscribed([]load.Subscription{{Service: "checkout", Source: usA}}, now)
		if s := table.Snapshot(now).Service("checkout"); s != nil && step > steps/4 {
			stale = max(stale, s.Stale)
		}
	}
	return stale
}

// TestClientsOfAKilledFollower asserts that the demand of clients whose replica was killed neither gets
// lost nor counts twice while they come back to another one, some of them at once and some late.
func TestClientsOfAKilledFollower(t *testing.T) {
	const interval, killed, clients = 5 * time.Second, 2 * time.Minute, 12
	leader := newEnd(true, &here{})
	leader.tick = interval
	gone, stays := newEnd(false, &here{}), newEnd(false, &here{})
	table := load.NewTable(load.Settings{Interval: interval}, nil, clock)
	// window is what a client tells a replica between two ticks.
	window := func(client int, opened, at time.Duration) load.StreamWindow {
		w := reporting().windows[0]
		w.Stream, w.Opened, w.Reports[0].Services[0].Interval = load.StreamID(client+1), other.Add(opened), interval
		w.Node.ID = "client-" + strconv.Itoa(client)
		phase := time.Duration(client+1) * interval / clients
		reported := at - (at-opened)%interval
		if opened == 0 {
			reported = at - interval + phase
		}
		if w.Reports[0].Arrived = other.Add(reported); reported <= max(opened, at-interval) {
			w.Reports = nil
		}
		return w
	}
	rate := 14 / interval.Seconds()
	least, most := 1e9, 0.0
	for at := interval; at < killed+2*time.Minute; at += interval {
		gone.here.windows, stays.here.windows = nil, nil
		for client := range clients {
			moved := killed + time.Second + time.Duration(client/2)*6*time.Second // the last one after 31 s
			switch {
			case client%2 == 0:
				stays.here.windows = append(stays.here.windows, window(client, 0, at))
			case at <= killed:
				gone.here.windows = append(gone.here.windows, window(client, 0, at))
			case at > moved:
				stays.here.windows = append(stays.here.windows, window(client, moved, at))
			}
		}
		if at <= killed {
			for _, o := range gone.Observations(other.Add(at), false, false) {
				if err := leader.Receive("c", 1, o, clock.Add(at)); err != nil {
					t.Fatal(err)
				}
			}
		}
		pass(t, stays, leader, 1, other.Add(at), clock.Add(at))
		now := clock.Add(at + interval/2)
		if at > killed {
			leader.dead = "c"
		}
		table.Merge(leader.Windows(now))
		table.SetSubscribed([]load.Subscription{{Service: "checkout", Source: usA}}, now)
		s := table.Snapshot(now).Service("checkout")
		if demand := s.Source(usA).Demand / rate / clients; at > time.Minute {
			least, most = min(least, demand), max(most, demand)
			t.Logf("%v: demand %.2f, raw %.2f, stale %.2f", at-killed, demand, s.Source(usA).Raw/rate/clients, s.Stale)
		}
	}
	if least < 0.97 || most > 1.03 {
		t.Errorf("of the demand, between %.2f and %.2f counted while clients came back", least, most)
	}
}
