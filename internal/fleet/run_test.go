package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
)

// plainFailover is a management server that knows no load: every zone's
// clients get their own zone first, then the rest of their region, then the
// rest of the world.
type plainFailover struct {
	address string
	server  *grpc.Server
	served  chan struct{}
}

func (p *plainFailover) XDSAddress() string   { return p.address }
func (p *plainFailover) AdminAddress() string { return "" }
func (p *plainFailover) Health(context.Context) (map[string]isobar.HealthStatus, error) {
	return map[string]isobar.HealthStatus{}, nil
}
func (p *plainFailover) Stop() error {
	p.server.Stop()
	<-p.served
	return nil
}

func startPlainFailover(t *testing.T) fleet.StartManagement {
	t.Helper()
	return func(_ context.Context, topology *isobar.Topology, s *fleet.Scenario) (fleet.Management, error) {
		xds := newXDSServer()
		xds.setService(t, s.Service)
		localities := topology.Services[0].Localities
		for i := range localities {
			xds.setFor(t, localities[i].Locality.Zone, nearestFirst(t, s.Service, localities[i].Locality, localities))
		}
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		p := &plainFailover{address: lis.Addr().String(), server: grpc.NewServer(), served: make(chan struct{})}
		xds.register(p.server)
		go func() {
			defer close(p.served)
			_ = p.server.Serve(lis)
		}()
		return p, nil
	}
}

func nearestFirst(t *testing.T, service string, from isobar.Locality, localities []isobar.ServiceLocality) *endpointv3.ClusterLoadAssignment {
	t.Helper()
	cla := &endpointv3.ClusterLoadAssignment{ClusterName: service}
	for i := range localities {
		l := localities[i].Locality
		priority := uint32(2)
		switch {
		case l == from:
			priority = 0
		case l.Region == from.Region:
			priority = 1
		}
		le := group(l, priority, 1)
		for _, e := range localities[i].Endpoints {
			host, port, err := net.SplitHostPort(e.Address)
			if err != nil {
				t.Error(err)
			}
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil {
				t.Error(err)
			}
			le.LbEndpoints = append(le.LbEndpoints, endpoint(host, uint32(n), corev3.HealthStatus_HEALTHY))
		}
		cla.Endpoints = append(cla.Endpoints, le)
	}
	return cla
}

// quick is the demo's scenario with short phases and a quarter of the size: the race detector
// makes requests expensive.
func quick() fleet.Scenario {
	s := fleet.DefaultScenario()
	s.Service = "plain"
	s.ServiceTime *= 4
	s.Step.Rate /= 4
	for i := range s.Zones {
		s.Zones[i].Rate /= 4
		// Test servers find a client's zone by its name alone.
		s.Zones[i].Locality.Zone += s.Zones[i].Locality.Region[:1]
	}
	s.Step.Zone, s.Loss.Zone = s.Zones[0].Locality, s.Zones[1].Locality
	s.Slot = 250 * time.Millisecond
	s.MaxQueue = 30
	s.Checkers, s.Hang = nil, fleet.HangEvent{}
	s.WarmUp, s.OnStep, s.Recover, s.OnLoss = 500*time.Millisecond, 2*time.Second, 500*time.Millisecond, 3*time.Second
	return s
}

// atLast plays something until all of it is as it should be, a few times at most.
// It is for what shows only where requests leave and arrive when they should: a
// machine that is busy with other things delays them. What holds always is to be
// told to t at once.
func atLast(t *testing.T, play func(attempt int) (wrong []string)) {
	t.Helper()
	const most = 5
	for attempt := 1; ; attempt++ {
		wrong := play(attempt)
		if len(wrong) == 0 || t.Failed() {
			return
		}
		if attempt == most {
			t.Errorf("played %d times; the last: %q", most, wrong)
			return
		}
		t.Logf("attempt %d: %q", attempt, wrong)
	}
}

// TestRunWithPlainFailover plays the scenario without Isobar to its end.
func TestRunWithPlainFailover(t *testing.T) {
	t.Parallel()
	atLast(t, func(attempt int) []string {
		s := quick()
		s.Service += fmt.Sprint(attempt)
		return playPlainFailover(t, s)
	})
}

func playPlainFailover(t *testing.T, s fleet.Scenario) (wrong []string) {
	t.Helper()
	run, err := fleet.Start(t.Context(), s, isobar.ModeObserve, startPlainFailover(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := run.Close(); err != nil {
			t.Error(err)
		}
	}()
	frames := 0
	err = run.Play(t.Context(), func(f fleet.Frame) {
		frames++
		if wantDead := frames > int(3*time.Second/s.Slot); f.Dead != wantDead || f.Mode != isobar.ModeObserve {
			t.Errorf("frame at %v in phase %q: dead %v, mode %v", f.At, f.Phase, f.Dead, f.Mode)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	run.StopLoad()
	if want := int(s.Length() / s.Slot); frames != want {
		t.Errorf("%d frames, want %d", frames, want)
	}
	o := run.Outcome()
	partitioned(t, &o)
	for name, p := range map[string]fleet.PhaseOutcome{"step": o.Step, "loss": o.Loss} {
		if p.FullestZone != s.Step.Zone || p.Unavoidable != 0 || p.CrossRegion != 0 {
			wrong = append(wrong, fmt.Sprintf("%s: fullest %s, %d unavoidable, cross-region %v; want all in %s, for no reason",
				name, p.FullestZone, p.Unavoidable, p.CrossRegion, s.Step.Zone))
		}
		if p.Requests == 0 || p.MeanMS < 10 || p.P99MS < p.MeanMS || p.SettledBelowLoad < 0.94 || p.SettledBelowLoad > 0.96 {
			wrong = append(wrong, fmt.Sprintf("%s: %+v", name, p))
		}
	}
	if v := fleet.Judge([]fleet.Outcome{o}); v.OK {
		wrong = append(wrong, "judged good")
	}
	return wrong
}

// partitioned checks that every failure of a run belongs somewhere.
func partitioned(t *testing.T, o *fleet.Outcome) {
	t.Helper()
	if parts := o.Step.AllFailed() + o.Hang.Failed + o.Loss.AllFailed() + o.FailedElsewhere; parts != o.Failed {
		t.Errorf("%d requests failed, but %d of them in the parts of %+v", o.Failed, parts, o)
	}
	var causes uint64
	for _, c := range o.Causes {
		causes += c.Count
	}
	if causes != o.Failed {
		t.Errorf("%d requests failed, but %d for a cause: %v", o.Failed, causes, o.Causes)
	}
}

// TestVerdictCountsWhatDiesWithAZone: an overloaded zone dies right at the end
// of the step, and all that waits in its queues with it.
func TestVerdictCountsWhatDiesWithAZone(t *testing.T) {
	t.Parallel()
	atLast(t, func(attempt int) (wrong []string) {
		s := quick()
		s.Service = fmt.Sprint("dies", attempt)
		s.Loss.Zone = s.Step.Zone
		s.WarmUp, s.OnStep, s.Recover, s.OnLoss = s.Slot, 4*s.Slot, 0, 4*s.Slot
		var shown uint64
		v, _, err := fleet.Compare(t.Context(), s, startPlainFailover(t), func(f fleet.Frame) { shown = max(shown, f.Overall.Failed) }, false)
		if err != nil {
			t.Fatal(err)
		}
		var most uint64
		for i := range v.Outcomes {
			o := &v.Outcomes[i]
			partitioned(t, o)
			if o.Loss.FailedUnderWay > o.Loss.AllFailed() || o.Failed > o.Requests {
				t.Errorf("%d requests were lost under way: %+v", o.Loss.FailedUnderWay, o)
			}
			if o.Loss.FailedUnderWay == 0 {
				wrong = append(wrong, fmt.Sprintf("none was lost under way: %+v", o))
			}
			most = max(most, o.Failed)
		}
		if most < shown {
			t.Errorf("%d requests failed in the live view, %d in the verdict", shown, most)
		}
		return wrong
	})
}

func TestStartRefusesBadScenarios(t *testing.T) {
	breakers := map[string]func(*fleet.Scenario){
		"no zones":      func(s *fleet.Scenario) { s.Zones = nil },
		"no deadline":   func(s *fleet.Scenario) { s.Deadline = 0 },
		"unknown zone":  func(s *fleet.Scenario) { s.Loss.Zone = isobar.MustLocality("x/y") },
		"too short":     func(s *fleet.Scenario) { s.OnStep = s.Slot },
		"bad network":   func(s *fleet.Scenario) { s.Network = append(s.Network, s.Network[0]) },
		"no such queue": func(s *fleet.Scenario) { s.MaxQueue = -1 },
	}
	for name, breaker := range breakers {
		s := quick()
		breaker(&s)
		if run, err := fleet.Start(t.Context(), s, isobar.ModeFull, startPlainFailover(t)); err == nil {
			t.Errorf("%s: no error", name)
			_ = run.Close()
		}
	}
}

func TestCompareTellsWhatKeepsItFromStarting(t *testing.T) {
	bad := errors.New("no port left")
	start := func(context.Context, *isobar.Topology, *fleet.Scenario) (fleet.Management, error) { return nil, bad }
	if _, _, err := fleet.Compare(t.Context(), quick(), start, nil, false); !errors.Is(err, bad) {
		t.Errorf("error %v, want %v", err, bad)
	}
}
