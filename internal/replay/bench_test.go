package replay_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/isobar-xds/isobar/internal/replay"
)

// BenchmarkTick is a tick of 200 services with and without a recorder: what the
// loop waits for is the difference. What writes is beside it.
func BenchmarkTick(b *testing.B) {
	for _, recording := range []bool{false, true} {
		b.Run(fmt.Sprintf("recording=%v", recording), func(b *testing.B) {
			f := newFleet(b, 200)
			for range 3 {
				f.step(replay.HowTick)
			}
			done := make(chan error, 1)
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			if recording {
				r := replay.NewRecorder("bench", 0)
				f.record(r)
				go func() { done <- r.Run(ctx, io.Discard, nil) }()
			}
			b.ReportAllocs()
			for b.Loop() {
				f.step(replay.HowTick)
			}
			b.StopTimer()
			if recording {
				f.recorder.End(replay.EndFinished)
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkTell is what the loop waits for at a tick of 200 services with 3
// localities from 3 clients: 1,800 entries of load reports.
func BenchmarkTell(b *testing.B) {
	f := newFleet(b, 200)
	for range 3 {
		f.step(replay.HowTick)
	}
	turn := f.turn()
	turn.Windows = f.windows()
	r := replay.NewRecorder("bench", 16<<20) // which is soon full; it is told nevertheless
	f.record(r)
	b.ReportAllocs()
	for b.Loop() {
		r.Tick(turn, f.set)
	}
}

// BenchmarkBegin is what the loop waits for when a recording begins.
func BenchmarkBegin(b *testing.B) {
	f := newFleet(b, 200)
	for range 20 {
		f.step(replay.HowTick)
	}
	b.ReportAllocs()
	for b.Loop() {
		f.record(replay.NewRecorder("bench", 0))
	}
}
