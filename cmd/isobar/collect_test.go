package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestMemoryLimitUnderPressure asserts that the heap grows less than to twice what is in use
// while clients press on memory, that it has room nevertheless, and that all is as before
// when they no longer do.
func TestMemoryLimitUnderPressure(t *testing.T) {
	goal := func() int64 {
		runtime.GC()
		s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(s)
		return int64(s[0].Value.Uint64())
	}
	objects := func() int64 {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(s)
		return int64(s[0].Value.Uint64())
	}
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	debug.FreeOSMemory() // what other tests left counts, too
	before := debug.SetMemoryLimit(-1)
	const mebi = 1 << 20
	inUse := make([]byte, 160*mebi)
	usual := goal()
	if usual < 2*int64(len(inUse)) {
		t.Fatalf("the heap grows to %d MiB without pressure", usual/mebi)
	}
	for _, test := range []struct{ limit, least, most int64 }{
		{240 * mebi, 180 * mebi, 240 * mebi},
		{100 * mebi, 180 * mebi, 260 * mebi}, // more than that is in use
	} {
		l := newMemoryLimit(test.limit)
		l.press(true)
		goal()
		l.press(true) // what is in use is known after a collection
		if got := goal(); got < test.least || got > test.most {
			t.Errorf("with a limit of %d MiB the heap grows to %d MiB, want %d to %d", test.limit/mebi, got/mebi, test.least/mebi, test.most/mebi)
		}
		left := make([]byte, 40*mebi) // what pressed
		runtime.KeepAlive(left)
		l.press(false)
		if got := objects(); got > 190*mebi {
			t.Errorf("%d MiB are in use after the pressure, want what is still needed", got/mebi)
		}
		if got := debug.SetMemoryLimit(-1); got != before {
			t.Errorf("without pressure the limit is %d, want %d as before", got, before)
		}
	}
	runtime.KeepAlive(inUse)
}

// TestMemoryLimitLeavesHeadroomBesideGaps asserts that the heap has room under pressure where most
// of many small objects were freed: the gaps between those that are left count against the limit,
// and so does free memory that was not given back.
func TestMemoryLimitLeavesHeadroomBesideGaps(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	const count, each, keeps = 1 << 20, 256, 32 // one object of each 8 KiB is kept
	kept := make([]*[each]byte, 0, count/keeps)
	for i := range count {
		if object := new([each]byte); i%keeps == 0 {
			kept = append(kept, object)
		}
	}
	left := make([]byte, 160<<20) // and much of what was in use a moment ago
	runtime.KeepAlive(left)
	runtime.GC()
	runtime.GC()
	l := newMemoryLimit(1 << 20)
	defer l.press(false)
	l.press(true)
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/goal:bytes"}}
	metrics.Read(s)
	if live, goal := s[0].Value.Uint64(), s[1].Value.Uint64(); goal < live+live/8 {
		t.Errorf("the heap grows to %d KiB with %d KiB in use, and gaps between small objects", goal>>10, live>>10)
	}
	runtime.KeepAlive(kept)
}

// TestGarbageOfALongCollectionIsNotInUse asserts that what a single collection found beyond
// the ones around it does not raise the limit, and that what stays does, one collection later.
func TestGarbageOfALongCollectionIsNotInUse(t *testing.T) {
	var live liveHeap
	for i, step := range []struct{ cycle, found, want int64 }{
		{7, 400, 400}, {7, 400, 400},
		{8, 550, 400}, {8, 550, 400},
		{9, 410, 410},
		{10, 560, 410}, {11, 570, 560}, {11, 570, 560},
		{20, 100, 100}, {21, 110, 100},
	} {
		if got := live.after(step.cycle, step.found); got != step.want {
			t.Errorf("step %d: %d in use, want %d", i, got, step.want)
		}
	}
}

var sink []byte // keeps the compiler from leaving out what a test allocates

// TestGarbageIsCollectedAfterAPush asserts that Isobar collects garbage when a push is over, and
// only if there is much of it.
func TestGarbageIsCollectedAfterAPush(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	forced := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	inUse := make([]byte, 32<<20)
	runtime.GC()
	before := forced()
	collectGarbage()
	if forced() != before {
		t.Error("garbage is collected although there is next to none")
	}
	debug.SetGCPercent(400) // Go itself is not to collect meanwhile
	for garbage() < collectFrom {
		sink = make([]byte, 1<<20)
	}
	newIdleCollector().published()
	testhelp.Eventually(t, "garbage is collected after a push", func() bool { return forced() > before })
	runtime.KeepAlive(inUse)
}
