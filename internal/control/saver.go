package control

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// job is the state to write; nil parts stay as they are.
type job struct {
	plan   *plan.Saved
	health *health.SavedMonitor
	pages  []plan.Page    // of the history; written before the plan that they lead up to
	done   []chan<- error // capacity 1: told when the plan is written, or why not
}

// saver writes state in a goroutine of its own, the newest only: a slow disk
// delays no push.
type saver struct {
	state   State
	log     *slog.Logger
	metrics *metrics
	next    chan job // capacity 1: a waiting job is replaced
	done    chan struct{}

	// durable is up to where both of the last two plans written reserve versions:
	// the newest file may be damaged later.
	durable atomic.Uint64

	mu       sync.Mutex // one write at a time
	reserved uint64     // highest ever written: it never goes back
	written  uint64     // the versions that the last written plan reserves

	noting  sync.Mutex
	failing map[string]string // the parts that can't be saved now, and why
}

func newSaver(state State, log *slog.Logger, m *metrics) *saver {
	s := &saver{state: state, log: log, metrics: m, next: make(chan job, 1), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		var owed []plan.Page // those that could not be written are tried again
		for j := range s.next {
			var err error
			if owed = newest(append(owed, j.pages...)); len(owed) > 0 {
				owed, err = s.writePages(owed)
			}
			if j.plan != nil {
				err = errors.Join(err, s.write(*j.plan))
			}
			for _, done := range j.done {
				done <- err
			}
			if j.health != nil {
				_ = s.report("what checkers found", s.state.SaveHealth(*j.health))
			}
		}
	}()
	return s
}

// writePages writes pages of the history, and returns those that it could not write.
func (s *saver) writePages(pages []plan.Page) (left []plan.Page, err error) {
	for _, page := range pages {
		if failed := s.state.SavePage(page); failed != nil {
			left, err = append(left, page), failed
		}
	}
	return left, s.report("the history", err)
}

// save hands a job over; called by the loop only.
func (s *saver) save(j job) {
	select {
	case waiting := <-s.next:
		if j.plan == nil {
			j.plan = waiting.plan
		}
		if j.health == nil {
			j.health = waiting.health
		}
		j.pages = newest(append(waiting.pages, j.pages...))
		j.done = append(waiting.done, j.done...)
	default:
	}
	s.next <- j
}

// newest leaves out pages that a later form of them replaces.
func newest(pages []plan.Page) []plan.Page {
	var out []plan.Page
	for _, p := range pages {
		if n := len(out); n > 0 && out[n-1].Number == p.Number {
			out = out[:n-1]
		}
		out = append(out, p)
	}
	if len(out) > plan.MaxPages {
		out = out[len(out)-plan.MaxPages:]
	}
	return out
}

func (s *saver) write(saved plan.Saved) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved = max(s.reserved, saved.Reserved)
	saved.Reserved = s.reserved
	err := s.state.SavePlan(saved)
	if err == nil {
		s.durable.Store(s.written)
		s.written = saved.Reserved
	}
	return s.report("the plan", err)
}

func (s *saver) report(what string, err error) error {
	news := s.note(what, err)
	if err != nil {
		s.metrics.saveErrors.Inc()
	}
	switch { // the status and the metric show that it lasts
	case news && err != nil:
		s.log.Error("could not save state; serving from memory", "what", what, "error", err)
	case news:
		s.log.Info("saving state works again", "what", what)
	}
	return err
}

// close writes the waiting job and ends the goroutine.
func (s *saver) close() {
	close(s.next)
	<-s.done
}

// note remembers a part that can't be saved now, and reports whether that has changed. Writes of
// different parts may end at the same time.
func (s *saver) note(what string, err error) (news bool) {
	s.noting.Lock()
	defer s.noting.Unlock()
	before, failing := s.failing[what]
	if err == nil {
		delete(s.failing, what)
		return failing
	}
	if s.failing == nil {
		s.failing = map[string]string{}
	}
	s.failing[what] = err.Error()
	return err.Error() != before
}

// fails reports whether something can't be saved now.
func (s *saver) fails() bool {
	s.noting.Lock()
	defer s.noting.Unlock()
	return len(s.failing) > 0
}

// unsaved lists the parts that can't be saved now, and why.
func (s *saver) unsaved() []string {
	s.noting.Lock()
	defer s.noting.Unlock()
	var out []string
	for _, what := range slices.Sorted(maps.Keys(s.failing)) {
		out = append(out, what+": "+s.failing[what])
	}
	return out
}
