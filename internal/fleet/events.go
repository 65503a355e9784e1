package fleet

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
)

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
			event{at: s.hangAt() + s.Hang.For, text: "the backend goes on", does: (*Run).resumeBackend})
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
