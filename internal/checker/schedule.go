package checker

import (
	"container/heap"
	"time"
)

// task is one check of one host: when it is due, and what came of it.
type task struct {
	host    *host
	check   *check
	prober  Prober // nil before the first probe
	verdict verdict

	due      time.Time
	phase    time.Duration // the first wait, which spreads probes; 0 = waited already
	index    int           // in the schedule; -1 = not in it
	inFlight bool
	gone     bool // removed while in flight
}

// schedule is the tasks that wait, the earliest first.
type schedule []*task

func (s *schedule) Len() int           { return len(*s) }
func (s *schedule) Less(i, j int) bool { return (*s)[i].due.Before((*s)[j].due) }
func (s *schedule) Swap(i, j int) {
	t := *s
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

// Push is for package heap.
func (s *schedule) Push(x any) {
	t := x.(*task) //nolint:forcetypeassert // nothing else is pushed
	t.index = len(*s)
	*s = append(*s, t)
}

// Pop is for package heap.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	t := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	t.index = -1
	return t
}

func (s *schedule) add(t *task) { heap.Push(s, t) }

func (s *schedule) remove(t *task) {
	if t.index >= 0 {
		heap.Remove(s, t.index)
	}
}

// next is the earliest task; nil for none.
func (s *schedule) next() *task {
	if len(*s) == 0 {
		return nil
	}
	return (*s)[0]
}

func (s *schedule) take() *task { return heap.Pop(s).(*task) } //nolint:forcetypeassert // nothing else is pushed

// stagger is at most the time between the first probes of hosts that are added
// together: few begin nearly at once, thousands are spread over the interval.
const stagger = 10 * time.Millisecond

// golden spreads points over an interval evenly, however many there will be.
const golden = 0.6180339887498949

// first tells when the i-th of n new tasks is due, and how long it waits after
// that, so that later probes are spread over the whole interval.
func first(t *task, i, n int) (delay, phase time.Duration) {
	usual := t.check.usual()
	spread := float64(i+1) * golden
	spread -= float64(int64(spread))
	delay = time.Duration(i) * min(stagger, usual/time.Duration(n))
	phase = max(time.Duration(spread*float64(usual)), leastInterval)
	return delay, phase
}
