package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/isobar-xds/isobar"
)

// Scenario is what a demo plays: a fleet, its load, a step of the load in one
// zone, a backend that hangs and the loss of a zone.
type Scenario struct {
	Service     string
	Zones       []ScenarioZone
	Network     []isobar.LatencyRule // round-trip times
	Concurrency int                  // requests a backend works on at once
	ServiceTime time.Duration        // mean of one request
	MaxQueue    int                  // requests that may wait at a backend
	Clients     int                  // instances per zone
	Proxies     *Proxies             // nil: the clients balance themselves
	Deadline    time.Duration        // of a request
	Interval    time.Duration        // of load reports, and the server's tick
	Slot        time.Duration        // resolution of the statistics
	Checkers    []isobar.Locality    // where health checkers run; none: health is not checked

	Step StepEvent
	// KillLeader is how long after the step begins the leader of a group of replicas is
	// killed; 0 = it is not. The management server must be such a group.
	KillLeader time.Duration

	Hang HangEvent
	Loss LossEvent

	WarmUp  time.Duration // before the step
	OnStep  time.Duration // how long the step lasts
	Recover time.Duration // between the end of the step and the loss; the hang is in it
	OnLoss  time.Duration // from the loss to the end
}

// ScenarioZone is one zone: backends, and the load of its own clients.
type ScenarioZone struct {
	Locality isobar.Locality
	Backends int
	Rate     float64 // requests/s
	// Declared is the capacity of the zone in the configuration, as a part of the real one; 0 =
	// 1. Requests in progress show the real one.
	Declared float64
}

// StepEvent raises the load of one zone's clients.
type StepEvent struct {
	Zone isobar.Locality
	Rate float64 // requests/s
}

// LossEvent kills all backends of a zone.
type LossEvent struct {
	Zone isobar.Locality
}

// DefaultScenario is the demo: two regions of two zones, 60 ms apart. Each
// zone serves 400 requests/s; the step takes one zone to 130% of that, of which the
// server is told one and a half times as much. The
// loss leaves its neighbour with 120%. Both fit easily into the whole fleet. One
// of two backends hangs in a zone that can do without it. A
// backend's queue holds 1.6 s of work: overload is slow first, and fails later.
func DefaultScenario() Scenario {
	us, eu := isobar.MustLocality("us-east"), isobar.MustLocality("eu-west")
	usA, usB := isobar.MustLocality("us-east/a"), isobar.MustLocality("us-east/b")
	euA, euB := isobar.MustLocality("eu-west/a"), isobar.MustLocality("eu-west/b")
	return Scenario{
		Service: "checkout",
		Zones: []ScenarioZone{
			{Locality: usA, Backends: 2, Rate: 240, Declared: 1.5},
			{Locality: usB, Backends: 2, Rate: 240},
			{Locality: euA, Backends: 2, Rate: 160},
			{Locality: euB, Backends: 2, Rate: 160},
		},
		Network: []isobar.LatencyRule{
			{From: us, To: us, MS: 2},
			{From: eu, To: eu, MS: 2},
			{From: us, To: eu, MS: 60},
		},
		Concurrency: 4,
		ServiceTime: 20 * time.Millisecond,
		MaxQueue:    320,
		Clients:     3,
		Deadline:    2 * time.Second,
		Interval:    time.Second,
		Slot:        time.Second,
		Checkers:    []isobar.Locality{usA, euA, euB},
		Step:        StepEvent{Zone: usA, Rate: 520},
		Hang:        HangEvent{Zone: euB, After: time.Second, For: 7 * time.Second},
		Loss:        LossEvent{Zone: usB},
		WarmUp:      3 * time.Second,
		OnStep:      12 * time.Second,
		Recover:     12 * time.Second,
		OnLoss:      12 * time.Second,
	}
}

// ReplicaScenario is the default scenario with a kill of the leader of a group of
// replicas during the load step, which lasts longer: weights stay as they are until
// clients have reported to the next leader.
func ReplicaScenario() Scenario {
	s := DefaultScenario()
	s.KillLeader = 2 * time.Second
	s.OnStep = 20 * time.Second
	return s
}

// Length is how long one run of the scenario takes.
func (s *Scenario) Length() time.Duration { return s.WarmUp + s.OnStep + s.Recover + s.OnLoss }

// lossAt is the offset of the loss.
func (s *Scenario) lossAt() time.Duration { return s.WarmUp + s.OnStep + s.Recover }

// hangAt is the offset at which a backend hangs.
func (s *Scenario) hangAt() time.Duration { return s.WarmUp + s.OnStep + s.Hang.After }

// backendCapacity is what one backend serves, requests/s.
func (s *Scenario) backendCapacity() float64 { return float64(s.Concurrency) / s.ServiceTime.Seconds() }

// Topology describes the fleet to a management server; addresses gives the
// endpoints of each zone.
func (s *Scenario) Topology(mode isobar.Mode, addresses map[isobar.Locality][]string) (*isobar.Topology, error) {
	network, err := isobar.NewNetwork(s.Network)
	if err != nil {
		return nil, err
	}
	service := isobar.Service{
		Name: s.Service, Mode: mode,
		ServiceTimeMS: float64(s.ServiceTime) / float64(time.Millisecond),
	}
	for _, z := range s.Zones {
		l := isobar.ServiceLocality{
			Locality:    z.Locality,
			MaxRate:     z.declared() * s.backendCapacity() * float64(z.Backends),
			Concurrency: float64(s.Concurrency * z.Backends),
		}
		for _, a := range addresses[z.Locality] {
			l.Endpoints = append(l.Endpoints, isobar.Endpoint{Address: a})
		}
		service.Localities = append(service.Localities, l)
	}
	if len(s.Checkers) > 0 {
		service.HealthChecks = []isobar.HealthCheck{healthCheck()}
	}
	topology := &isobar.Topology{Services: []isobar.Service{service}, Network: network, Revision: 1}
	topology.Normalize()
	return topology, nil
}

// declared is what the management server is told, as a part of the capacity.
func (z *ScenarioZone) declared() float64 { return cmp.Or(z.Declared, 1) }

// rate is the load of a zone's clients at an offset into the run, requests/s.
func (s *Scenario) rate(zone int, at time.Duration) float64 {
	z := &s.Zones[zone]
	if z.Locality == s.Step.Zone && at >= s.WarmUp && at < s.WarmUp+s.OnStep {
		return s.Step.Rate
	}
	return z.Rate
}

// phase names what happens at an offset into the run.
func (s *Scenario) phase(at time.Duration) string {
	switch {
	case at < s.WarmUp:
		return "warm-up"
	case at < s.WarmUp+s.OnStep:
		return fmt.Sprintf("step: %s at %.0f requests/s", s.Step.Zone, s.Step.Rate)
	case s.Hang.For > 0 && at >= s.hangAt() && at < s.hangAt()+s.Hang.For:
		return s.Hang.Zone.String() + ": a backend hangs"
	case at < s.lossAt():
		return "recovery"
	default:
		return "loss of " + s.Loss.Zone.String()
	}
}

// errScenario marks a scenario that cannot be played.
var errScenario = errors.New("bad scenario")

func (s *Scenario) check() error {
	if s.Service == "" || len(s.Zones) == 0 || s.Clients < 1 || s.Slot <= 0 || s.Interval <= 0 || s.Deadline <= 0 {
		return fmt.Errorf("%w: Service, Zones, Clients, Slot, Interval and Deadline are required", errScenario)
	}
	known := map[isobar.Locality]bool{}
	for _, z := range s.Zones {
		known[z.Locality] = true
	}
	if !known[s.Step.Zone] || !known[s.Loss.Zone] {
		return fmt.Errorf("%w: the zones of step and loss must be among the zones", errScenario)
	}
	if s.OnStep < settleSpan*s.Slot || s.OnLoss < settleSpan*s.Slot || s.WarmUp < 0 || s.Recover < 0 {
		return fmt.Errorf("%w: step and loss must last at least %d slots", errScenario, settleSpan)
	}
	if s.KillLeader < 0 || s.KillLeader > 0 && s.KillLeader+takeoverSpan > s.OnStep {
		return fmt.Errorf("%w: the kill of the leader and %v after it must lie in the step", errScenario, takeoverSpan)
	}
	return s.checkHang(known)
}

// checkHang wants all of the hang in the recovery, so that its failures and
// those of the other events are told apart.
func (s *Scenario) checkHang(known map[isobar.Locality]bool) error {
	h := &s.Hang
	switch {
	case h.For == 0:
		return nil
	case len(s.Checkers) == 0:
		return fmt.Errorf("%w: a hang needs Checkers that find it", errScenario)
	case !known[h.Zone]:
		return fmt.Errorf("%w: the zone of the hang must be among the zones", errScenario)
	case h.For <= quietSpan || h.After < 0 || h.After+h.For+s.Deadline > s.Recover:
		return fmt.Errorf("%w: the hang must last more than %v, and with the deadline of its last request fit into the recovery",
			errScenario, quietSpan)
	}
	return nil
}
