package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestOperateScripts runs the commands by which operators change the plan
// against a real admin interface.
func TestOperateScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script-operate",
		Setup: func(env *testscript.Env) error {
			what := &supposed{}
			env.Values[supposedKey] = what
			return serveAdmin(env, admin.Options{
				Objects: noObjects{}, Parser: noParser{}, Planner: fixedPlan{}, Fleet: fixedFleet{},
				Operator: &operatorCalls{what: what}, Configuration: fixedFile{}, Metrics: admin.Metrics{Gatherer: prometheus.NewRegistry()},
			})
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"isobar": inProcess, "asked": wasAsked},
	})
}

// serveAdmin serves an admin interface to a script: at $ADMIN, and at $READONLY
// one that is not writable.
func serveAdmin(env *testscript.Env, options admin.Options) error {
	for _, name := range []string{"READONLY", "ADMIN"} {
		options.Writable = name == "ADMIN"
		s, err := admin.New(options)
		if err != nil {
			return err
		}
		address, stop, err := startAdmin(s)
		if err != nil {
			return err
		}
		env.Defer(stop)
		env.Setenv(name, address)
	}
	return nil
}

// startAdmin serves an admin interface on loopback, until stop is called.
func startAdmin(s *admin.Server) (address string, stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		cancel()
		return "", nil, err
	}
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(ctx, l) })
	stop = func() {
		cancel()
		served.Wait()
	}
	return "http://" + l.Addr().String(), stop, nil
}

const supposedKey = "supposed"

// supposed remembers what the server was asked last.
type supposed struct {
	mu   sync.Mutex
	last []byte
}

func (s *supposed) tell(ctx context.Context, w *plan.WhatIf) (plan.Difference, error) {
	s.mu.Lock()
	s.last, _ = json.Marshal(w)
	s.mu.Unlock()
	if len(w.Lose) > 0 && w.Lose[0].Region == "mars" {
		return plan.Difference{}, fmt.Errorf("lose mars: %w: no service has endpoints there", isobar.ErrNotFound)
	}
	d, _, err := fixedPreview(ctx, nil)
	d.Latency, d.Moved = plan.Three{Before: 2, First: 9, Settled: 7.5}, 0.4
	d.Services[0].Latency = d.Latency
	d.Services[0].Localities = append(d.Services[0].Localities, plan.LocalityDifference{
		Locality: isobar.MustLocality("us-east/c"), Utilization: plan.Three{Before: 0.5, First: 0.7, Settled: 0.9}, Ceiling: 0.8, Declared: true,
	})
	return d, err
}

func wasAsked(ts *testscript.TestScript, neg bool, args []string) {
	s, _ := ts.Value(supposedKey).(*supposed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := string(s.last); neg || got != strings.Join(args, " ") {
		ts.Fatalf("the server was asked %s", got)
	}
}

// operatorCalls remembers what it was told, as the loop does.
type operatorCalls struct {
	mu     sync.Mutex
	paused plan.Pauses
	what   *supposed
}

func (o *operatorCalls) WhatIf(ctx context.Context, w *plan.WhatIf) (plan.Difference, error) {
	return o.what.tell(ctx, w)
}

func (*operatorCalls) Breaches(context.Context, *admin.Drain) ([]string, error) { return nil, nil }

// fixedFile is a configuration file that is previewed.
type fixedFile struct{ admin.Configuration }

func (fixedFile) Held() *admin.HeldConfiguration { return nil }

func (fixedFile) Preview(ctx context.Context, body []byte) (plan.Difference, []admin.Problem, error) {
	d, problems, err := fixedPreview(ctx, body)
	d.Services[0].Latency = plan.Three{Before: 2, First: 9, Settled: 7.5}
	return d, problems, err
}

func (o *operatorCalls) plan() *plan.Plan { return &plan.Plan{Version: 4712, Paused: o.paused} }

func (o *operatorCalls) Pause(_ context.Context, p plan.Pause) (*plan.Plan, []string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p.Since = made
	o.paused = o.paused.With(p)
	return o.plan(), nil, nil
}

func (o *operatorCalls) Resume(_ context.Context, of plan.Pause) (plan.Pauses, *plan.Plan, []string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	resumed, remaining, err := o.paused.Without(of.Service)
	if err != nil {
		return nil, nil, nil, err
	}
	o.paused = remaining
	return resumed, o.plan(), nil, nil
}

func (o *operatorCalls) Rollback(ctx context.Context, version uint64, p plan.Pause, force bool) (*plan.Plan, *plan.Plan, []string, error) {
	if version == 4701 && !force {
		return nil, nil, nil, &plan.TooMuchError{Breaches: []string{"checkout: us-east/c at 127.0% of its capacity, above its ceiling of 80.0%; it is at 60.0% now"}}
	}
	if version == 4711 {
		return nil, nil, nil, fmt.Errorf("version %d: %w: the shares are those of now", version, plan.ErrUnchanged)
	}
	if version != 4700 && version != 4701 {
		return nil, nil, nil, fmt.Errorf("version %d: %w: what is kept begins with version 4700", version, isobar.ErrNotFound)
	}
	before := o.plan()
	next, _, err := o.Pause(ctx, p)
	return before, next, []string{"it is in force, but not saved: " + errors.New("no space left on device").Error()}, err
}

func (o *operatorCalls) History(_ context.Context, service string) ([]plan.Change, error) {
	if service != "" && service != "checkout" {
		return []plan.Change{}, nil
	}
	a, b := isobar.MustLocality("us-east/b"), isobar.MustLocality("us-east/c")
	moved := plan.ServiceChange{
		Service: "checkout", Reason: "10.0 points a tick at the most", Sites: []isobar.Locality{a, b}, After: 0.05,
		Sources: []plan.SourceChange{{Source: a, Before: []uint16{10_000, 0}, After: []uint16{9000, 1000}}, {Source: b, After: []uint16{0, 10_000}}},
	}
	return []plan.Change{
		{Version: 4711, Previous: 4710, Made: made, Trigger: plan.TriggerOperator, Who: "ann", Reason: "pause: canary", Services: []plan.ServiceChange{}},
		{Version: 4710, Previous: 4709, Made: made, Trigger: plan.TriggerTick, Services: []plan.ServiceChange{moved}},
	}, nil
}

func fixedPreview(context.Context, []byte) (plan.Difference, []admin.Problem, error) {
	a, b := isobar.MustLocality("us-east/b"), isobar.MustLocality("us-east/c")
	return plan.Difference{Version: "4711", Ticks: 4, Settled: true, Same: 3, Services: []plan.ServiceDifference{{
			Service: "checkout", Change: plan.ChangeChanged,
			Localities: []plan.LocalityDifference{{Locality: a, Utilization: plan.Three{Before: 0.6, First: 0.85, Settled: 0.6}, Ceiling: 0.8, Declared: true}},
			Sources: []plan.SourceDifference{{Source: a, Demand: 100, Shares: []plan.ShareDifference{
				{Locality: a, Share: plan.Three{Before: 1, First: 0.9, Settled: 0.6}}, {Locality: b, Share: plan.Three{First: 0.1, Settled: 0.4}},
			}}},
		}}, Risks: []plan.Risk{{Service: "checkout", Locality: a, Text: "checkout: utilization of us-east/b is 85.0% after the first tick, above its ceiling of 80%; 60.0% now"}}},
		[]admin.Problem{{Error: "service cart belongs to the API"}}, nil
}
