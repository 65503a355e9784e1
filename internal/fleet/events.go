package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
)

// event is something that happens to the fleet at an offset into the run.
type event struct {
	at   time.Duration
	does func(r *Run)
}

// events lists what happens in a scenario, in order.
func (s *Scenario) events() []event {
	var out []event
	if s.Hang.For > 0 {
		out = append(out,
			event{at: s.hangAt(), does: (*Run).hangBackend},
			event{at: s.hangAt() + s.Hang.For, does: (*Run).resumeBackend})
	}
	return append(out, event{at: s.lossAt(), does: (*Run).loseZone})
}

// happen lets happen what is due before an offset, each at its moment.
func (r *Run) happen(ctx context.Context, before time.Duration) error {
	for len(r.todo) > 0 && r.todo[0].at < before {
		if err := waitUntil(ctx, r.began.Add(r.todo[0].at)); err != nil {
			return err
		}
		r.todo[0].does(r)
		r.todo = r.todo[1:]
	}
	return nil
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
