package admin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// streamed is a line of the fleet as readers see it.
type streamed struct {
	Version  string            `json:"version"`
	Whole    bool              `json:"whole"`
	Status   *Status           `json:"status"`
	Services []ServiceOverview `json:"services"`
}

// lineOf returns what a reader that knows the state of a number is sent.
func lineOf(t *testing.T, set *liveSet, known uint64) (line streamed, size int) {
	t.Helper()
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	set.write(w, known)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v in %s", err, out.Bytes())
	}
	return line, out.Len()
}

// TestRowsThatLookTheSameAreNotSent: a plan that decides every service again, with the same
// outcome, is a short line without rows and without the status; where some services
// change, these are the rows.
func TestRowsThatLookTheSameAreNotSent(t *testing.T) {
	const services = 200
	topology := configured(services, 4)
	p := &planner{plan: large(1, topology, 0)}
	s, at := fleetState(t, p), time.Now()
	first := s.live.look(t.Context(), s, &liveSet{}, p.plan, at)
	if line, size := lineOf(t, first, 0); !line.Whole || line.Status == nil || len(line.Services) != services || size < 100*services {
		t.Fatalf("the first line: whole %t, status %v, %d services, %d bytes", line.Whole, line.Status, len(line.Services), size)
	}
	p.plan = large(2, topology, 0)
	same := s.live.look(t.Context(), s, first, p.plan, at.Add(statusEvery))
	if line, size := lineOf(t, same, first.number); line.Version != "2" || line.Whole || line.Status != nil || len(line.Services) != 0 || size > 60 {
		t.Errorf("nothing changed: version %s, whole %t, status %v, %d services, %d bytes", line.Version, line.Whole, line.Status, len(line.Services), size)
	}
	for i := range same.rows {
		if &same.rows[i].json[0] != &first.rows[i].json[0] {
			t.Fatalf("%s was encoded again", same.rows[i].name)
		}
	}
	p.plan = large(3, topology, 7)
	changed := s.live.look(t.Context(), s, same, p.plan, at.Add(2*statusEvery))
	if line, _ := lineOf(t, changed, same.number); line.Whole || line.Status == nil || len(line.Services) != 7 || line.Services[6].Name != "service-00006" {
		t.Errorf("seven services and their sum changed: %+v", line)
	}
	if line, _ := lineOf(t, changed, first.number); line.Whole || len(line.Services) != 7 {
		t.Errorf("for a reader that missed a line: %+v", line)
	}
}

// TestStatesWithoutNewsAreNone: a status that says the same makes no line.
func TestStatesWithoutNewsAreNone(t *testing.T) {
	p := &planner{plan: large(1, configured(3, 2), 0)}
	s, at := fleetState(t, p), time.Now()
	first := s.live.look(t.Context(), s, &liveSet{}, p.plan, at)
	again := s.live.look(t.Context(), s, first, p.plan, at.Add(statusEvery))
	if again.number != first.number || !again.made.After(first.made) {
		t.Errorf("state %d of %v follows state %d of %v", again.number, again.made, first.number, first.made)
	}
}

// TestReadersShareTheLine: what changed is encoded when the state is made, and sending it
// takes no memory and no work for each row and reader.
func TestReadersShareTheLine(t *testing.T) {
	topology := configured(500, 2)
	p := &planner{plan: large(1, topology, 500)}
	s, at := fleetState(t, p), time.Now()
	first := s.live.look(t.Context(), s, &liveSet{}, p.plan, at)
	p.plan = large(2, topology, 500)
	second := s.live.look(t.Context(), s, first, p.plan, at.Add(statusEvery))
	writes := &writeCounter{}
	w := bufio.NewWriterSize(writes, streamBuffer)
	const readers = 50
	allocated := testing.AllocsPerRun(readers, func() {
		second.write(w, first.number)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	})
	runs := readers + 1 // AllocsPerRun runs once more
	if allocated != 0 || writes.count != runs || writes.bytes != runs*len(second.changes) || len(second.changes) < 500*100 {
		t.Errorf("%d readers took %v allocations each, %d writes and %d bytes of a line of %d", readers, allocated, writes.count, writes.bytes, len(second.changes))
	}
}

type writeCounter struct{ count, bytes int }

func (c *writeCounter) Write(p []byte) (int, error) {
	c.count++
	c.bytes += len(p)
	return len(p), nil
}

// reporting is a fleet with clients of one service, some of them silent. Its clients take
// some time to list.
type reporting struct {
	nobody

	subscribers []ServiceClients
	takes       time.Duration
}

func (f *reporting) Subscribers() []ServiceClients { return f.subscribers }

func (f *reporting) Clients() []Client {
	<-time.After(f.takes)
	return nil
}

// TestRowsFollowWhatTheyAreMadeOf: a service that no decision touched has another row where
// clients fell silent, or the network changed.
func TestRowsFollowWhatTheyAreMadeOf(t *testing.T) {
	p := &planner{plan: large(1, configured(3, 2), 0)}
	s, at := fleetState(t, p), time.Now()
	fleet := &reporting{}
	s.opts.Fleet = fleet
	set := s.live.look(t.Context(), s, &liveSet{}, p.plan, at)
	next := func() []ServiceOverview {
		t.Helper()
		p.plan = &plan.Plan{Version: p.plan.Version + 1, Topology: p.plan.Topology, Services: p.plan.Services}
		at = at.Add(time.Second)
		known := set.number
		set = s.live.look(t.Context(), s, set, p.plan, at)
		line, _ := lineOf(t, set, known)
		return line.Services
	}
	if got := next(); len(got) != 0 {
		t.Errorf("untouched services: %+v", got)
	}
	fleet.subscribers = []ServiceClients{{Service: "service-00001", Locality: isobar.MustLocality("r0/a"), Streams: 2, Silent: 1}}
	if got := next(); len(got) != 1 || got[0].Name != "service-00001" || got[0].Coverage >= 1 {
		t.Errorf("a service with a silent client: %+v", got)
	}
	if got := next(); len(got) != 0 {
		t.Errorf("the client is still silent: %+v", got)
	}
	r0 := isobar.MustLocality("r0")
	network, err := isobar.NewNetwork(nil)
	if err == nil {
		network, err = network.WithEgress([]isobar.EgressRule{{From: r0, To: r0, Price: 5}})
	}
	if err != nil {
		t.Fatal(err)
	}
	topology := *p.plan.Topology
	topology.Network = network
	p.plan = &plan.Plan{Version: p.plan.Version, Topology: &topology, Services: p.plan.Services}
	if got := next(); len(got) != 3 || got[0].EgressMS <= 0 {
		t.Errorf("traffic has a price now: %+v", got)
	}
}

// TestLooksRest: a look that takes 2 ms is followed by a pause of 250 ms, however many plans come
// and readers ask. One that takes longer is followed by a longer pause, up to 30 ms for each
// service and 30 s.
func TestLooksRest(t *testing.T) {
	for _, tc := range []struct {
		services    int
		takes       time.Duration
		every       time.Duration // readers ask
		least, most int           // states in a minute
	}{
		{400, 2 * time.Millisecond, 100 * time.Millisecond, 190, 210},
		{400, 200 * time.Millisecond, 100 * time.Millisecond, 5, 6},
		{1000, 78 * time.Millisecond, 100 * time.Millisecond, 6, 7}, // less than 1% of the time
		{1000, 200 * time.Millisecond, 100 * time.Millisecond, 3, 3},
		{2, 80 * time.Millisecond, 100 * time.Millisecond, 320, 340},
		{5000, 500 * time.Millisecond, 5 * time.Second, 2, 3},
	} {
		bubble.Test(t, func(t *testing.T) {
			topology := configured(tc.services, 2)
			p := &planner{plan: large(1, topology, 2)}
			s := fleetState(t, p)
			s.opts.Fleet = &reporting{takes: tc.takes}
			states := map[uint64]bool{}
			for begin := time.Now(); time.Since(begin) < time.Minute; <-time.After(tc.every) {
				p.plan = large(p.plan.Version+1, topology, 2)
				s.live.mu.Lock()
				if s.live.last != nil {
					s.live.last.made = time.Time{} // it asks for the status, which takes the time
				}
				s.live.mu.Unlock()
				states[s.live.now(t.Context(), s).number] = true
			}
			if len(states) < tc.least || len(states) > tc.most {
				t.Errorf("%d services, looks of %v: %d states in a minute, want %d to %d", tc.services, tc.takes, len(states), tc.least, tc.most)
			}
		})
	}
}

// TestStateIsForgotten: a minute after the last reader left, no state is kept and no plan
// with it. A reader that comes back in time finds the state.
func TestStateIsForgotten(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := &planner{plan: large(1, configured(2, 2), 0)}
		s := fleetState(t, p)
		kept := func() bool {
			s.live.mu.Lock()
			defer s.live.mu.Unlock()
			return s.live.last != nil
		}
		s.live.join()
		first := s.live.now(t.Context(), s).number
		s.live.leave()
		<-time.After(keepFor - time.Second)
		s.live.join()
		if got := s.live.now(t.Context(), s).number; got != first {
			t.Errorf("a reader that came back found state %d after %d", got, first)
		}
		<-time.After(2 * keepFor)
		if !kept() {
			t.Error("the state was forgotten under a reader")
		}
		s.live.leave()
		<-time.After(keepFor + time.Second)
		if kept() {
			t.Error("the state is kept without readers")
		}
		if got := s.live.now(t.Context(), s).number; got <= first {
			t.Errorf("state %d after state %d", got, first)
		}
	})
}
