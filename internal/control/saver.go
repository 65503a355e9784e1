package control

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// reserveStep is how many versions are reserved at once: versions must grow
// also when the process dies between publishing a plan and saving it.
const reserveStep = 10_000

// saveEvery bounds how old the saved demand may be while no weight changes.
const saveEvery = 30 * time.Second

// reserve makes versions up to above+reserveStep usable, durably. Where the
// state can't be written, which has been told then, serving goes on.
func (l *Loop) reserve(saved plan.Saved, above uint64) error {
	l.reserved = above + reserveStep
	saved.Reserved = l.reserved
	// Twice, because the newest file may be damaged later, and the one before it
	// must not allow versions that this process has used.
	err := errors.Join(l.saver.write(saved), l.saver.write(saved))
	l.lastSaved = time.Now()
	return err
}

// reserveAhead has what is saved from now on reserve the next versions as well,
// once half of those reserved are used: publishing then never waits for the disk.
func (l *Loop) reserveAhead(version uint64) {
	l.reserved = max(l.reserved, l.saver.durable.Load())
	if version+reserveStep/2 > l.reserved {
		l.ahead = max(l.ahead, l.reserved+reserveStep)
	}
}

func (l *Loop) toSave(p *plan.Plan) plan.Saved {
	saved := p.Save()
	saved.Reserved, saved.LastChange = max(l.reserved, l.ahead), l.history.Last()
	boot := l.opts.Boot()
	saved.Boot, saved.Up = boot.ID, boot.Up
	return saved
}

// worthSaving tells whether a restart from what is saved would serve other
// weights, or know much older demand.
func (l *Loop) worthSaving(before, p *plan.Plan) bool {
	if before == nil || len(l.pages) > 0 || len(before.Services) != len(p.Services) || p.Made.Sub(l.lastSaved) >= saveEvery {
		return true
	}
	for i, s := range p.Services {
		b := before.Services[i]
		if b == s {
			continue
		}
		if b.Spec.Name != s.Spec.Name || len(b.Result.Sources) != len(s.Result.Sources) ||
			b.Result.Drop != s.Result.Drop || !b.Result.Classes.Equal(s.Result.Classes) {
			return true
		}
		for j := range s.Result.Sources {
			if !slices.Equal(s.Result.Sources[j].Shares, b.Result.Sources[j].Shares) {
				return true
			}
		}
	}
	return false
}

// job is what is to be written; nil parts are left as they are.
type job struct {
	plan   *plan.Saved
	health *health.SavedKeeper
	pages  []plan.Page    // of the history; written before the plan that they lead up to
	done   []chan<- error // capacity 1: told when the plan is written, or why not
}

// saver writes state in a goroutine of its own, the newest only: a slow disk
// delays no push.
type saver struct {
	state   State
	log     *slog.Logger
	metrics *metrics
	next    chan job // capacity 1: what waits is replaced
	done    chan struct{}

	// durable is up to where both of the last two plans written reserve versions:
	// the newest file may be damaged later.
	durable atomic.Uint64

	mu       sync.Mutex // one write at a time
	reserved uint64     // highest ever written: it never goes back
	written  uint64     // what the last plan written reserves

	noting  sync.Mutex
	failing map[string]string // what can't be saved now, and why
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
				_ = s.told("what checkers found", s.state.SaveHealth(*j.health))
			}
		}
	}()
	return s
}

// writePages writes pages of the history, and gives those that it could not write.
func (s *saver) writePages(pages []plan.Page) (left []plan.Page, err error) {
	for _, page := range pages {
		if failed := s.state.SavePage(page); failed != nil {
			left, err = append(left, page), failed
		}
	}
	return left, s.told("the history", err)
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
	return s.told("the plan", err)
}

func (s *saver) told(what string, err error) error {
	news := s.note(what, err)
	if err != nil {
		s.metrics.saveErrors.Inc()
	}
	switch { // what goes on is told by the status and the metric
	case news && err != nil:
		s.log.Error("state could not be saved; serving goes on from memory", "what", what, "error", err)
	case news:
		s.log.Info("state is saved again", "what", what)
	}
	return err
}

// close writes what waits and ends the goroutine.
func (s *saver) close() {
	close(s.next)
	<-s.done
}
