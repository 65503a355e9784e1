package main

import (
	"math"
	"runtime/debug"
	"runtime/metrics"
)

// While clients press on memory the process is to stay within pressedMemory: the budget for
// messages of clients, and a little more. What is in use is collected more often for that,
// but it gets room for at least one byte of garbage for leastGarbage bytes, so that the
// garbage collector always leaves most of the processor time to others.
const (
	pressedMemory = 544 << 20
	leastGarbage  = 4
)

// memoryLimit changes the limit of memory from which on Go collects garbage more often.
type memoryLimit struct {
	pressed int64 // bytes, while clients press on memory
	usual   int64 // of all other times: what GOMEMLIMIT says
	samples []metrics.Sample
}

func newMemoryLimit(pressed int64) *memoryLimit {
	return &memoryLimit{
		pressed: pressed, usual: debug.SetMemoryLimit(-1),
		samples: []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}},
	}
}

// press sets the limit; on = clients press on memory. It is told again while they do, since
// what is in use changes.
func (l *memoryLimit) press(on bool) {
	limit := l.usual
	if on {
		limit = min(limit, max(l.pressed, l.least()))
	}
	if limit != debug.SetMemoryLimit(-1) {
		debug.SetMemoryLimit(limit)
	}
}

// least is what the process needs so that the collector does not run all the time.
func (l *memoryLimit) least() int64 {
	metrics.Read(l.samples)
	n := uint64(0)
	for _, s := range l.samples {
		n += s.Value.Uint64()
	}
	return int64(min(n, math.MaxInt64/2)) / leastGarbage * (leastGarbage + 1)
}
