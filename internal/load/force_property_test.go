package load_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// order is a push and when each client began to use it.
type order struct {
	shares []load.PlannedShare // sorted
	used   []time.Time
}

func (o *order) acked(now time.Time) time.Time {
	last := slices.MaxFunc(o.used, time.Time.Compare)
	if last.After(now) {
		return time.Time{}
	}
	return last
}

// drawOrder draws shares over up to three zones, and when the clients get them.
func drawOrder(rt *rapid.T, now time.Time, before *order, clients int) order {
	var o order
	left := 1.0
	for i, l := range []isobar.Locality{zoneC, zoneA, zoneB} { // sorted
		share := left
		if i < 2 {
			share = min(left, float64(rapid.IntRange(0, 100).Draw(rt, "points"))/100)
		}
		if left -= share; share > 0 {
			o.shares = append(o.shares, load.PlannedShare{Locality: l, Share: share})
		}
	}
	for c := range clients {
		at := now.Add(time.Duration(rapid.Float64Range(0, 3).Draw(rt, "delay") * float64(interval)))
		if before != nil && at.Before(before.used[c]) {
			at = before.used[c]
		}
		o.used = append(o.used, at)
	}
	return o
}

// landed counts what a client sends where from one time to another.
func landed(orders []order, client int, rate float64, from, to time.Time) load.ServiceReport {
	r := load.ServiceReport{Service: "checkout", Interval: to.Sub(from)}
	issued := map[isobar.Locality]float64{}
	for k := range orders {
		begin, end := orders[k].used[client], to
		if k == 0 || begin.Before(from) {
			begin = from
		}
		if k+1 < len(orders) && orders[k+1].used[client].Before(end) {
			end = orders[k+1].used[client]
		}
		for _, sh := range orders[k].shares {
			issued[sh.Locality] += rate * sh.Share * max(0, end.Sub(begin).Seconds())
		}
	}
	for _, l := range []isobar.Locality{zoneA, zoneB, zoneC} {
		if n := uint64(issued[l] + 0.5); n > 0 {
			r.Localities = append(r.Localities, load.LocalityReport{Locality: &l, Issued: n, HasIssued: true, Succeeded: n})
		}
	}
	return r
}

// obedient is a client that does what it is told, at a phase of its own, and
// whose reports travel for a while.
type obedient struct {
	client

	index int
	next  time.Time // end of the window that it counts now
	lag   time.Duration
}

// due makes the reports that have arrived by now.
func (o *obedient) due(orders []order, now time.Time) []load.Report {
	const rate = 400.0
	var out []load.Report
	for ; !o.next.Add(o.lag).After(now); o.next = o.next.Add(interval) {
		out = append(out, report(o.next.Add(o.lag), landed(orders, o.index, rate, o.next.Add(-interval), o.next)))
	}
	return out
}

// Clients that do what they are told are never accused of anything, however
// often and however much their shares change, however late they hear of it and
// however late their reports come.
func TestObedientClientsAreNeverAccused(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const clients = 3
		tab, e := table(), load.NewAdherence(load.Settings{Interval: interval})
		orders := []order{drawOrder(rt, start.Add(-10*interval), nil, clients)}
		fleet := make([]*obedient, clients)
		for i := range fleet {
			o := &obedient{client: newClient(load.StreamID(i+1), load.AgentGRPC), index: i}
			o.open = start.Add(time.Duration(rapid.Float64Range(-1, 0).Draw(rt, "phase") * float64(interval)))
			o.lag = time.Duration(rapid.Float64Range(0, 3).Draw(rt, "lag") * float64(interval))
			o.next = o.open.Add(interval)
			fleet[i] = o
		}
		for k := range 40 {
			now := at(float64(k + 1))
			var w []load.StreamWindow
			for _, o := range fleet {
				w = append(w, o.window(o.due(orders, now)...))
			}
			tab.Merge(w)
			current := &orders[len(orders)-1]
			if s := tab.Snapshot(now).Service("checkout"); s != nil {
				f := e.Observe(now, s, []load.PlannedSource{{
					Source: zoneA, Shares: current.shares, Acked: current.acked(now), Streams: clients,
				}})
				e.Name(&f, tab)
				if len(f.Barred)+len(f.Unreachable)+len(f.Background)+len(f.Deviating)+len(f.Individual) > 0 {
					rt.Fatalf("after %d intervals: %+v", k+1, f)
				}
			}
			if rapid.IntRange(0, 2).Draw(rt, "pushes") > 0 {
				orders = append(orders, drawOrder(rt, now, current, clients))
			}
		}
	})
}
