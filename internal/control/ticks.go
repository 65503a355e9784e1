package control

import "time"

// ticks counts decisions. Immutable.
type ticks struct {
	count uint64
	took  time.Duration // the last one
}

// Ticks tells how many decisions were taken, and how long the last one took.
func (l *Loop) Ticks() (count uint64, took time.Duration) {
	if t := l.ticked.Load(); t != nil {
		return t.count, t.took
	}
	return 0, 0
}

func (l *Loop) countTick(took time.Duration) {
	l.metrics.ticked(took)
	count, _ := l.Ticks()
	l.ticked.Store(&ticks{count: count + 1, took: took})
}
