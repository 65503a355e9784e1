package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A push to thousands of streams allocates more than anything else between two ticks, so Go mostly
// begins to collect garbage during a push. With one processor, a push then takes several times
// as long. An idleCollector therefore collects a little earlier, when a push is over.

// Rules of the idleCollector.
const (
	// afterPush is how long clients have for their acknowledgements. The plan after it comes 100 ms
	// after the one before, at the earliest.
	afterPush = 60 * time.Millisecond
	// collectFrom is the part of the garbage that Go allows from which on the collector does not
	// wait for more. Go itself begins between 0.7 and 0.95.
	collectFrom = 0.6
)

// idleCollector collects garbage between pushes.
type idleCollector struct{ timer *time.Timer }

func newIdleCollector() *idleCollector {
	return &idleCollector{time.AfterFunc(math.MaxInt64, collectGarbage)}
}

// published says that a push is over. Of several in a row, the last one counts.
func (c *idleCollector) published() { c.timer.Reset(afterPush) }

// collectGarbage collects garbage if there is much of it.
func collectGarbage() {
	if garbage() >= collectFrom {
		runtime.GC()
	}
}

// garbage returns how much garbage there may be, as a part of what Go allows.
func garbage() float64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/goal:bytes"}}
	metrics.Read(s)
	live, used, goal := s[0].Value.Uint64(), s[1].Value.Uint64(), s[2].Value.Uint64()
	if used <= live || goal <= live {
		return 0
	}
	return float64(used-live) / float64(goal-live)
}

// While clients press on memory the process is to stay within pressedMemory: the budget for
// messages of clients, and a little more. What is in use is collected more often for that,
// but it gets room for at least one byte of garbage for leastGarbage bytes, so that the
// garbage collector always leaves most of the processor time to others.
const (
	pressedMemory = 544 << 20
	leastGarbage  = 8

	heapParts, ofHeapParts = 97, 100 // of what the limit leaves to objects, Go uses these
	spareMemory            = 4 << 20 // what is no object grows, too
)

// memoryLimit changes the limit of memory from which on Go collects garbage more often.
type memoryLimit struct {
	pressed int64 // bytes, while clients press on memory
	usual   int64 // of all other times: what GOMEMLIMIT says
	samples []metrics.Sample
	live    liveHeap
	on      bool // clients pressed last time
}

func newMemoryLimit(pressed int64) *memoryLimit {
	return &memoryLimit{
		pressed: pressed, usual: debug.SetMemoryLimit(-1),
		samples: []metrics.Sample{
			{Name: "/memory/classes/total:bytes"},
			{Name: "/memory/classes/heap/released:bytes"},
			{Name: "/memory/classes/heap/free:bytes"},
			{Name: "/memory/classes/heap/objects:bytes"},
			{Name: "/gc/heap/live:bytes"},
			{Name: "/gc/cycles/total:gc-cycles"},
		},
	}
}

// press sets the limit; on reports whether clients press on memory. While they do, it is
// called again, since what is in use changes. What they took is given back when they no longer
// do: the heap could grow to twice of what was in use before Go collects it without the limit.
func (l *memoryLimit) press(on bool) {
	limit := l.usual
	if on {
		limit = min(limit, max(l.pressed, l.least()))
	}
	if limit != debug.SetMemoryLimit(-1) {
		debug.SetMemoryLimit(limit)
	}
	if l.on && !on {
		debug.FreeOSMemory()
	}
	l.on = on
}

// least is what the process needs so that the collector does not run all the time. Of the
// limit Go first takes what is no object: stacks, its own data, and the gaps between objects,
// which may be larger than these where most of them were freed. Of the rest it leaves some
// hundredths alone, or a mebibyte. What the process has above the limit Go takes off once
// more, free memory that was not given back among it: with half of that the two come to the
// same, and Go still gives it back.
func (l *memoryLimit) least() int64 {
	metrics.Read(l.samples)
	var n [6]int64
	for i, s := range l.samples {
		n[i] = int64(min(s.Value.Uint64(), math.MaxInt64/4))
	}
	free, live := n[2], l.live.after(n[5], n[4])
	other := n[0] - n[1] - free - n[3]
	return max(0, other) + free/2 + spareMemory + live/leastGarbage*(leastGarbage+1)/heapParts*ofHeapParts
}

// liveHeap shows how much of the heap is in use from what the last collections found. One
// alone finds too much: what comes while it runs counts as in use, and on a busy machine
// that is a quarter of the heap. The smaller of two is right, or one collection late.
type liveHeap struct{ cycle, last, before int64 }

// after returns what is in use after a collection, which is seen again and again, has found so much.
func (l *liveHeap) after(cycle, found int64) int64 {
	if cycle != l.cycle {
		l.before = l.last
		if l.cycle == 0 {
			l.before = found
		}
	}
	l.cycle, l.last = cycle, found
	return min(l.before, l.last)
}
