package replay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/replay"
)

const interval = 5 * time.Second

// fleet is pure code with clients that do as they are told, and what the loop
// around it does with a recorder.
type fleet struct {
	tb       testing.TB
	now      time.Time
	topology *isobar.Topology
	set      health.Table
	decider  *plan.Decider
	monitor  *health.Monitor
	current  *plan.Plan
	recorder *replay.Recorder
	opened   time.Time
	tick     int
	silent   bool // the clients of the first zone are
}

var zones = []string{"eu/a", "us/a", "us/b"}

// newFleet is a fleet of some services in three zones.
func newFleet(tb testing.TB, services int) *fleet {
	tb.Helper()
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: isobar.MustLocality("us"), To: isobar.MustLocality("eu"), MS: 80}})
	if err != nil {
		tb.Fatal(err)
	}
	t := &isobar.Topology{Network: network, Revision: 1}
	for i := range services {
		s := isobar.Service{Name: fmt.Sprintf("service-%03d", i), ServiceTimeMS: 10}
		for j, z := range zones {
			l := isobar.ServiceLocality{Locality: isobar.MustLocality(z), MaxRate: 1000, Concurrency: 10}
			for e := range 3 {
				l.Endpoints = append(l.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d:80", i, j, e)})
			}
			s.Localities = append(s.Localities, l)
		}
		t.Services = append(t.Services, s)
	}
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	f := &fleet{tb: tb, now: now, opened: now, topology: t, decider: plan.NewDecider(interval, nil, now)}
	f.monitor = health.NewMonitor(interval, interval, health.SavedMonitor{}, now)
	f.observe()
	if f.current, err = plan.Restore(&plan.Saved{}, t, f.monitor.Table(f.set), now, 1); err != nil {
		tb.Fatal(err)
	}
	return f
}

func (f *fleet) observe() {
	e := health.Event{Now: f.now, Topology: f.topology, Operators: f.set}
	if f.recorder != nil {
		f.recorder.Observe(&e, interval, interval)
	}
	f.monitor.Observe(e)
}

// windows is what the clients of all zones report of the present plan: more and
// more from us/a.
func (f *fleet) windows() []load.StreamWindow {
	out := make([]load.StreamWindow, len(zones))
	for i, z := range zones {
		source := isobar.MustLocality(z)
		w := load.StreamWindow{Stream: load.StreamID(i + 1), Node: load.Node{ID: z, Cluster: "web", Locality: source, Agent: load.AgentEnvoy}, Opened: f.opened}
		r := load.Report{Arrived: f.now.Add(-time.Second)}
		for _, s := range f.current.Services {
			rate := 300.0
			if z == "us/a" {
				rate = min(1200, 300+30*float64(f.tick))
			}
			sr := load.ServiceReport{Service: s.Spec.Name, Interval: interval}
			for l := range s.Sites {
				share := 1.0 / float64(len(s.Sites))
				if of := s.Result.Source(source); of != nil {
					share = of.Shares[l]
				}
				n := uint64(rate * share * interval.Seconds())
				sr.Localities = append(sr.Localities, load.LocalityReport{Locality: &s.Sites[l].Group.Locality, Issued: n, Succeeded: n, HasIssued: true})
			}
			r.Services = append(r.Services, sr)
		}
		if !f.silent || i > 0 {
			w.Reports = []load.Report{r}
		}
		out[i] = w
	}
	return out
}

// turn is what the present one starts from, without reports.
func (f *fleet) turn() *plan.Turn {
	turn := &plan.Turn{
		Now: f.now, Interval: interval, Topology: f.topology, Health: f.monitor.Table(f.set),
		Paused: f.current.Paused, Previous: f.current, Version: f.current.Version + 1,
	}
	for _, s := range f.current.Services {
		for _, z := range zones {
			turn.Subscribed = append(turn.Subscribed, load.Subscription{Service: s.Spec.Name, Source: isobar.MustLocality(z), Streams: 2, AckedAt: f.now.Add(-interval)})
		}
	}
	return turn
}

// step takes a turn; how is one of the ways to decide.
func (f *fleet) step(how string) {
	f.tb.Helper()
	f.now = f.now.Add(interval)
	f.tick++
	f.observe()
	turn := f.turn()
	decide := f.decider.Reapply
	if how == replay.HowTick {
		turn.Windows = f.windows()
		decide = f.decider.Tick
	}
	if f.recorder != nil && how == replay.HowTick {
		f.recorder.Tick(turn, f.set)
	} else if f.recorder != nil {
		f.recorder.Reapply(turn, f.set)
	}
	next, err := decide(turn)
	if f.recorder != nil {
		f.recorder.Decided(f.current, next, err)
	}
	if err != nil {
		f.tb.Fatal(err)
	}
	f.current = next
}

// record lets a recorder listen.
func (f *fleet) record(r *replay.Recorder) {
	f.tb.Helper()
	err := r.Begin(&replay.Start{Now: f.now, Decider: f.decider, Monitor: f.monitor, Current: f.current, Topology: f.topology, Operators: f.set})
	if err != nil {
		f.tb.Fatal(err)
	}
	f.recorder = r
}

// written is what a recorder wrote when it had ended.
func written(tb testing.TB, r *replay.Recorder) []byte {
	tb.Helper()
	r.End(replay.EndFinished)
	var out bytes.Buffer
	if err := r.Run(context.Background(), &out, nil); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// grow gives a service more capacity, as a reload of the configuration does:
// everything else is the same memory.
func (f *fleet) grow(service int, to float64) {
	next := *f.topology
	next.Services = append([]isobar.Service(nil), f.topology.Services...)
	s := &next.Services[service]
	s.Localities = append([]isobar.ServiceLocality(nil), s.Localities...)
	s.Localities[1].MaxRate = to
	next.Revision++
	f.topology = &next
	f.step(replay.HowReapply)
}

// mark sets the health of an endpoint, as an operator does.
func (f *fleet) mark(zone int, status isobar.HealthStatus) {
	f.set = f.set.With(health.Override{Key: health.Key{Service: "service-000", Address: fmt.Sprintf("10.0.%d.0:80", zone)}, Status: status})
	f.step(replay.HowReapply)
}

// recorded is a trace of some ticks with a change of the configuration and of
// health in between.
func recorded(tb testing.TB, services int) []byte {
	tb.Helper()
	f := newFleet(tb, services)
	for range 5 {
		f.step(replay.HowTick)
	}
	f.record(replay.NewRecorder("test", 0))
	for i := range 20 {
		switch i {
		case 5:
			f.grow(0, 1500)
		case 10:
			f.mark(2, isobar.Draining)
		}
		f.step(replay.HowTick)
	}
	return written(tb, f.recorder)
}

// TestReplayFromAnywhere: whatever the state is when a recording begins, and
// whatever happens then, it is decided again the same; and under the same
// configuration, the other side of the replay has the same shares.
func TestReplayFromAnywhere(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		f := newFleet(t, 2)
		happen := func() {
			switch rapid.SampledFrom([]string{"tick", "tick", "tick", "reapply", "reload", "mark", "silence"}).Draw(r, "happens") {
			case "tick":
				f.step(replay.HowTick)
			case "reapply":
				f.step(replay.HowReapply)
			case "reload":
				f.grow(rapid.IntRange(0, 1).Draw(r, "service"), rapid.Float64Range(500, 2000).Draw(r, "rate"))
			case "mark":
				f.mark(rapid.IntRange(0, 2).Draw(r, "zone"), isobar.HealthStatus(rapid.IntRange(0, 5).Draw(r, "health")))
			case "silence":
				f.silent = !f.silent
			}
		}
		for range rapid.IntRange(0, 20).Draw(r, "before") {
			happen()
		}
		f.record(replay.NewRecorder("test", 0))
		for range rapid.IntRange(0, 20).Draw(r, "after") {
			happen()
		}
		steps := 0
		var last *plan.Plan
		other := replay.NewWhatIf(func(t *isobar.Topology) *isobar.Topology { return t })
		err := play(written(t, f.recorder), replay.ReaderOptions{}, func(s *replay.Step) error {
			steps++
			last = s.Plan
			if s.Difference != "" {
				return fmt.Errorf("plan %d: %s", s.Turn.Version, s.Difference)
			}
			_, next, err := other.Next(s)
			if err != nil {
				return err
			}
			if change, ok := plan.Changed(s.Plan, next, plan.Origin{}); ok {
				return fmt.Errorf("plan %d would have other shares under the same configuration: %+v", s.Turn.Version, change)
			}
			return nil
		})
		if err != nil || last != nil && last.Version != f.current.Version {
			r.Fatalf("%d steps, %v", steps, err)
		}
	})
}

// play plays a trace to its end.
func play(data []byte, opts replay.ReaderOptions, take func(*replay.Step) error) error {
	in, err := replay.NewReader(bytes.NewReader(data), opts)
	if err != nil {
		return err
	}
	for p := replay.NewPlayer(in); ; {
		s, err := p.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && take != nil {
			err = take(s)
		}
		if err != nil {
			return err
		}
	}
}

func TestReplay(t *testing.T) {
	steps := 0
	err := play(recorded(t, 3), replay.ReaderOptions{}, func(s *replay.Step) error {
		steps++
		if s.Difference != "" {
			return fmt.Errorf("plan %d: %s", s.Turn.Version, s.Difference)
		}
		return nil
	})
	if err != nil || steps != 22 {
		t.Errorf("%d steps, %v", steps, err)
	}
}

// TestTypes: everything that pure code is given can be recorded, whatever fields
// come to it.
func TestTypes(t *testing.T) {
	if err := replay.Check(); err != nil {
		t.Errorf("add a way to write it to trace/deep, or keep it out of what pure code is given: %v", err)
	}
}

// TestTheSameConfigurationIsTheSame: under the configuration that was recorded,
// the other side of a replay has the same shares.
func TestTheSameConfigurationIsTheSame(t *testing.T) {
	same := replay.NewWhatIf(func(t *isobar.Topology) *isobar.Topology { return t })
	more := replay.NewWhatIf(func(t *isobar.Topology) *isobar.Topology {
		out := *t
		out.Services = append([]isobar.Service(nil), t.Services...)
		for i := range out.Services {
			out.Services[i].Policy = isobar.PolicyNearest
		}
		return &out
	})
	var last, other *plan.Plan
	err := play(recorded(t, 3), replay.ReaderOptions{}, func(s *replay.Step) error {
		before, next, err := same.Next(s)
		if err != nil {
			return err
		}
		if change, ok := plan.Changed(s.Plan, next, plan.Origin{}); ok {
			return fmt.Errorf("plan %d has other shares: %+v", s.Turn.Version, change)
		}
		if a, b := plan.OutlookOf(next, ""), plan.OutlookOf(s.Plan, ""); a != b {
			return fmt.Errorf("plan %d looks like %+v, want %+v", s.Turn.Version, a, b)
		}
		if a, b := next.Moved(before, ""), s.Plan.Moved(s.Before, ""); a != b {
			return fmt.Errorf("plan %d moves %v, want %v", s.Turn.Version, a, b)
		}
		last = s.Plan
		_, other, err = more.Next(s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if is, what := plan.OutlookOf(last, ""), plan.OutlookOf(other, ""); is.CrossZone == 0 || is.Fullest > 0.81 || what.CrossZone > 0.01 || what.Fullest < 0.9 {
		t.Errorf("decided %+v\nwhat if %+v", is, what)
	}
}

// TestDifferencesAreNamed: a fleet that does something else than it told the
// recorder.
func TestDifferencesAreNamed(t *testing.T) {
	f := newFleet(t, 3)
	for range 5 {
		f.step(replay.HowTick)
	}
	f.record(replay.NewRecorder("test", 0))
	f.step(replay.HowTick)
	// Something that the recorder is not told of.
	turn := &plan.Turn{Now: f.now, Interval: interval, Topology: f.topology, Health: f.monitor.Table(f.set), Previous: f.current, Version: f.current.Version + 1}
	turn.Windows = f.windows()
	for i := range turn.Windows {
		for j := range turn.Windows[i].Reports[0].Services[1].Localities {
			turn.Windows[i].Reports[0].Services[1].Localities[j].Issued *= 3
		}
	}
	if _, err := f.decider.Tick(turn); err != nil {
		t.Fatal(err)
	}
	f.step(replay.HowTick)
	var differences []string
	err := play(written(t, f.recorder), replay.ReaderOptions{}, func(s *replay.Step) error {
		differences = append(differences, s.Difference)
		return nil
	})
	if err != nil || len(differences) != 2 || differences[0] != "" || !strings.Contains(differences[1], "source us/a to us/a: share") {
		t.Errorf("%q, %v", differences, err)
	}
}

// TestSlowReaders are given up, and are told why when they read on.
func TestSlowReaders(t *testing.T) {
	f := newFleet(t, 3)
	f.record(replay.NewRecorder("test", 50_000))
	for range 200 {
		f.step(replay.HowTick)
	}
	if !f.recorder.Done() {
		t.Fatal("the recorder wants more")
	}
	var out bytes.Buffer
	if err := f.recorder.Run(t.Context(), &out, nil); !errors.Is(err, replay.ErrSlow) {
		t.Errorf("it ends with %v", err)
	}
	found, err := replay.Skim(&out)
	if err != nil || found.Ended != replay.ErrSlow.Error() {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestCutTraces: whatever is whole is the same, and the cut is told.
func TestCutTraces(t *testing.T) {
	data := recorded(t, 1)
	for at := 10; at < len(data); at += 1 + len(data)/50 {
		err := play(data[:at], replay.ReaderOptions{}, func(s *replay.Step) error {
			if s.Difference != "" {
				return fmt.Errorf("plan %d: %s", s.Turn.Version, s.Difference)
			}
			return nil
		})
		if !errors.Is(err, replay.ErrCut) {
			t.Fatalf("cut at %d of %d bytes: %v", at, len(data), err)
		}
	}
	// A recording that was cut, and another one behind it.
	var copied bytes.Buffer
	if err := replay.Copy(&copied, bytes.NewReader(data[:len(data)/2])); !errors.Is(err, replay.ErrCut) {
		t.Fatal(err)
	}
	copied.Write(data)
	steps := 0
	err := play(copied.Bytes(), replay.ReaderOptions{}, func(s *replay.Step) error {
		steps++
		if s.Difference != "" {
			return errors.New(s.Difference)
		}
		return nil
	})
	if err != nil || steps <= 22 {
		t.Errorf("%d steps, %v", steps, err)
	}
	if found, err := replay.Skim(bytes.NewReader(copied.Bytes())); err != nil || found.Recordings != 2 || found.Plans < steps {
		t.Errorf("%+v, %v", found, err)
	}
}
