package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
)

// Frame is the state of a run, once a slot, for a live view.
type Frame struct {
	Mode    isobar.Mode
	Phase   string
	At      time.Duration // into the run
	Length  time.Duration
	Admin   string  // address of the admin API
	Dead    bool    // the zone of the loss is dead
	Now     Summary // of the newest complete slots
	Overall Summary // since the beginning
}

// Run is a fleet in one mode: backends, a management server and clients with
// load. Close ends it.
type Run struct {
	scenario Scenario
	mode     isobar.Mode
	backends []*Backend
	places   map[string]isobar.Locality // by backend address
	network  *isobar.Network
	manager  Management
	clients  []caller
	zoneOf   []int // per client
	recorder *Recorder
	began    time.Time
	stopLoad context.CancelFunc
	load     sync.WaitGroup
	checkers checkers
	believed beliefs
	todo     []event // what is still to happen, in order
	hung     *Backend
	hang     hangWatch
	lostAt   time.Time // of the zone; zero before
}

// readyTimeout bounds how long a fleet may take until every client gets
// through.
const readyTimeout = time.Minute

// Start starts a fleet in a mode, and its load once all clients are connected.
func Start(ctx context.Context, s Scenario, mode isobar.Mode, start StartManagement) (run *Run, err error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	r := &Run{scenario: s, mode: mode, places: make(map[string]isobar.Locality), todo: s.events()}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.network, err = isobar.NewNetwork(s.Network); err != nil {
		return nil, err
	}
	var zones []Zone
	for _, z := range s.Zones {
		zones = append(zones, Zone{Locality: z.Locality, Capacity: float64(z.Backends) * s.backendCapacity()})
	}
	// Nothing counts before the load starts.
	r.recorder = NewRecorder(time.Now().Add(readyTimeout), s.Slot, zones)
	topology, err := r.startBackends()
	if err != nil {
		return nil, err
	}
	if r.manager, err = start(ctx, topology, &r.scenario); err != nil {
		return nil, fmt.Errorf("management server: %w", err)
	}
	if err := r.startCheckers(ctx); err != nil {
		return nil, err
	}
	r.believed.watch(ctx, r.manager.Health)
	if err := r.connect(ctx); err != nil {
		return nil, err
	}
	r.startLoad(context.WithoutCancel(ctx))
	return r, nil
}

func (r *Run) startBackends() (*isobar.Topology, error) {
	addresses := make(map[isobar.Locality][]string)
	for zi, z := range r.scenario.Zones {
		for i := range z.Backends {
			hangs := r.scenario.Hang.For > 0 && z.Locality == r.scenario.Hang.Zone && i == 0
			b, err := StartBackend(BackendOptions{
				Locality: z.Locality, Concurrency: r.scenario.Concurrency, ServiceTime: r.scenario.ServiceTime,
				MaxQueue: r.scenario.MaxQueue, Seed: uint64(100*zi + i),
				RTT: func(from isobar.Locality) time.Duration { return r.latency(from, z.Locality) },
				OnArrival: func() {
					now := time.Now()
					r.recorder.Arrived(z.Locality, now)
					if hangs {
						r.hang.arrived(now)
					}
				},
			})
			if err != nil {
				return nil, err
			}
			if hangs {
				r.hung = b
			}
			r.backends = append(r.backends, b)
			r.places[b.Address()] = z.Locality
			addresses[z.Locality] = append(addresses[z.Locality], b.Address())
		}
	}
	return r.scenario.Topology(r.mode, addresses)
}

// connect makes the clients and waits until each gets through.
func (r *Run) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, errors.New("not all clients got through in time"))
	defer cancel()
	for zi, z := range r.scenario.Zones {
		for i := range r.scenario.Clients {
			c, err := r.newClient(ctx, ClientOptions{
				ID: fmt.Sprintf("demo-%s-%d", z.Locality, i), Cluster: "demo", Locality: z.Locality,
				Server: r.manager.XDSAddress(), Service: r.scenario.Service,
				RTT: func(address string) time.Duration { return r.rtt(z.Locality, address) },
			})
			if err != nil {
				return err
			}
			r.clients = append(r.clients, c)
			r.zoneOf = append(r.zoneOf, zi)
		}
	}
	errs := make([]error, len(r.clients))
	var wg sync.WaitGroup
	for i, c := range r.clients {
		wg.Go(func() { errs[i] = c.Ready(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (r *Run) newClient(ctx context.Context, o ClientOptions) (caller, error) {
	if p := r.scenario.Proxies; p != nil {
		return startProxied(ctx, p, o, r.scenario.Deadline)
	}
	return NewClient(o)
}

// rtt is the round-trip time from a zone to a backend.
func (r *Run) rtt(from isobar.Locality, address string) time.Duration {
	return r.latency(from, r.places[address])
}

func (r *Run) latency(from, to isobar.Locality) time.Duration {
	ms, _ := r.network.Latency(from, to)
	return time.Duration(ms * float64(time.Millisecond))
}

func (r *Run) startLoad(ctx context.Context) {
	ctx, r.stopLoad = context.WithCancel(ctx)
	r.began = time.Now()
	// A fleet that is kept goes on for ever; its statistics do not.
	r.recorder.restart(r.began, int(r.scenario.Length()/r.scenario.Slot))
	for i, c := range r.clients {
		p := &Poisson{
			Seed: uint64(i),
			Rate: func(now time.Time) float64 {
				return r.scenario.rate(r.zoneOf[i], now.Sub(r.began)) / float64(r.scenario.Clients)
			},
			MaxLate: r.scenario.Deadline,
			Send:    func(ctx context.Context, due time.Time) { r.send(ctx, c, due) },
			Refuse: func(due time.Time, why string) {
				r.recorder.Wanted(c.Locality(), due)
				r.recorder.Record(Sample{Source: c.Locality(), Due: due, Failed: true, Cause: why})
			},
		}
		r.load.Go(func() { p.Run(ctx) })
	}
}

func (r *Run) send(ctx context.Context, c caller, due time.Time) {
	ctx, cancel := context.WithTimeout(ctx, r.scenario.Deadline)
	defer cancel()
	r.recorder.Wanted(c.Locality(), due)
	late := time.Since(due)
	address, err := c.Call(ctx)
	r.recorder.Record(Sample{
		Source: c.Locality(), Landed: r.places[address], Backend: address, Due: due, Late: late, Latency: time.Since(due),
		Failed: err != nil, Cause: status.Code(err).String(),
	})
}

// Play lets the scenario happen, and calls frame after every slot (nil = not).
// It returns early with the context's error.
func (r *Run) Play(ctx context.Context, frame func(Frame)) error {
	for at := r.scenario.Slot; at <= r.scenario.Length(); at += r.scenario.Slot {
		if err := r.happen(ctx, at); err != nil {
			return err
		}
		if err := waitUntil(ctx, r.began.Add(at)); err != nil {
			return err
		}
		if frame != nil {
			frame(r.Frame())
		}
	}
	return nil
}

// frameSlots is how many slots a live view averages over.
const frameSlots = 2

// Frame is the state now.
func (r *Run) Frame() Frame {
	whole := time.Since(r.began).Truncate(r.scenario.Slot)
	return Frame{
		Mode: r.mode, Phase: r.scenario.phase(whole - r.scenario.Slot), At: whole, Length: r.scenario.Length(),
		Admin: r.manager.AdminAddress(), Dead: !r.lostAt.IsZero(),
		Now:     r.recorder.Window(whole-frameSlots*r.scenario.Slot, whole),
		Overall: r.recorder.Window(0, whole),
	}
}

// answered returns when all requests of the scenario have ended, while the
// load may go on. That takes at most their deadline, or until the context ends.
func (r *Run) answered(ctx context.Context) error {
	for r.recorder.Open() > 0 {
		if err := waitUntil(ctx, time.Now().Add(answeredPoll)); err != nil {
			return err
		}
	}
	return nil
}

// answeredPoll is between the looks of [Run.answered].
const answeredPoll = 20 * time.Millisecond

// StopLoad ends the load and returns when all requests are answered.
func (r *Run) StopLoad() {
	if r.stopLoad != nil {
		r.stopLoad()
	}
	r.load.Wait()
}

// Admin is the address of the management server's admin API.
func (r *Run) Admin() string { return r.manager.AdminAddress() }

// Close ends everything, clients and checkers first: all at once, since grpc-go
// waits up to a second for a server to answer its goodbye.
func (r *Run) Close() error {
	r.StopLoad()
	errs := make([]error, len(r.clients)+3)
	errs[len(r.clients)+1] = r.believed.close()
	var wg sync.WaitGroup
	for i, c := range r.clients {
		wg.Go(func() { errs[i] = c.Close() })
	}
	wg.Go(func() { errs[len(r.clients)+2] = r.checkers.stop() })
	wg.Wait()
	if r.manager != nil {
		errs[len(r.clients)] = r.manager.Stop()
	}
	for _, b := range r.backends {
		b.Kill()
	}
	return errors.Join(errs...)
}

// Compare plays the scenario in mode observe, which is plain locality
// failover, and then in mode full, each with a fleet of its own, and judges
// them. frame is called after every slot (nil = not). With keep the second
// fleet goes on running and is returned, else kept is nil.
func Compare(ctx context.Context, s Scenario, start StartManagement, frame func(Frame), keep bool) (v Verdict, kept *Run, err error) {
	var outcomes []Outcome
	for _, mode := range []isobar.Mode{isobar.ModeObserve, isobar.ModeFull} {
		last := mode == isobar.ModeFull
		outcome, run, err := play(ctx, s, mode, start, frame, keep && last)
		if err != nil {
			return Verdict{}, nil, fmt.Errorf("mode %s: %w", mode, err)
		}
		outcomes, kept = append(outcomes, outcome), run
	}
	return Judge(outcomes), kept, nil
}

// play plays the scenario once. The fleet is returned when it is kept.
func play(ctx context.Context, s Scenario, mode isobar.Mode, start StartManagement, frame func(Frame), keep bool) (o Outcome, kept *Run, err error) {
	run, err := Start(ctx, s, mode, start)
	if err != nil {
		return Outcome{}, nil, err
	}
	defer func() {
		if kept == nil {
			err = errors.Join(err, run.Close())
		}
	}()
	if err := run.Play(ctx, frame); err != nil {
		return Outcome{}, nil, err
	}
	if keep {
		// The load goes on, but what was due in time still counts.
		if err := run.answered(ctx); err != nil {
			return Outcome{}, nil, err
		}
		return run.Outcome(), run, nil
	}
	run.StopLoad()
	return run.Outcome(), nil, nil
}

// event is something that happens to the fleet at an offset into the run.
type event struct {
	at   time.Duration
	text string       // for charts
	does func(r *Run) // nil: the load does it by itself
}

// events lists what happens in a scenario, in order.
func (s *Scenario) events() []event {
	out := []event{
		{at: s.WarmUp, text: fmt.Sprintf("load step in %s", s.Step.Zone)},
	}
	if s.KillLeader > 0 {
		out = append(out, event{at: s.WarmUp + s.KillLeader, text: "the leader of the replicas is killed", does: (*Run).killLeader})
	}
	out = append(out, event{at: s.WarmUp + s.OnStep, text: "load step ends"})
	if s.Hang.For > 0 {
		out = append(out,
			event{at: s.hangAt(), text: fmt.Sprintf("a backend hangs in %s", s.Hang.Zone), does: (*Run).hangBackend},
			event{at: s.hangAt() + s.Hang.For, text: "the backend answers again", does: (*Run).resumeBackend})
	}
	return append(out, event{at: s.lossAt(), text: fmt.Sprintf("%s is lost", s.Loss.Zone), does: (*Run).loseZone})
}

// marker is a management server whose charts mark moments.
type marker interface{ Mark(text string) }

// happen lets happen what is due before an offset, each at its moment.
func (r *Run) happen(ctx context.Context, before time.Duration) error {
	for len(r.todo) > 0 && r.todo[0].at < before {
		if err := waitUntil(ctx, r.began.Add(r.todo[0].at)); err != nil {
			return err
		}
		if m, ok := r.manager.(marker); ok {
			m.Mark(r.todo[0].text)
		}
		if r.todo[0].does != nil {
			r.todo[0].does(r)
		}
		r.todo = r.todo[1:]
	}
	return nil
}

// leaderKiller is a management server of several replicas.
type leaderKiller interface {
	killLeader(ctx context.Context)
	taken() *TakeoverOutcome
}

func (r *Run) killLeader() {
	if g, ok := r.manager.(leaderKiller); ok {
		g.killLeader(context.Background()) // it bounds itself
	}
}

func (r *Run) hangBackend() {
	r.hang.begin(time.Now())
	r.hung.Hang()
}

func (r *Run) resumeBackend() {
	r.hung.Resume()
	r.hang.end(time.Now())
}

// loseZone kills the zone of the loss.
func (r *Run) loseZone() {
	r.lostAt = time.Now()
	var wg sync.WaitGroup
	for _, b := range r.in(r.scenario.Loss.Zone) {
		wg.Go(b.Kill)
	}
	wg.Wait()
}

// in lists the backends in a zone.
func (r *Run) in(zone isobar.Locality) []*Backend {
	var out []*Backend
	for _, b := range r.backends {
		if b.Locality() == zone {
			out = append(out, b)
		}
	}
	return out
}
