package replay_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/replay"
)

// small is what a fuzzed trace may take.
var small = replay.ReaderOptions{MaxRecord: 1 << 20, MaxMemory: 1 << 22}

// FuzzReader: whatever a file holds, reading it, and playing what can be read to its
// end, ends with an error at the worst, and takes no more memory than it may.
func FuzzReader(f *testing.F) {
	good := recorded(f, 1)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte("isobartr\x00\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if whole(t, data) {
			_ = play(data, small, nil)
		}
	})
}

// FuzzRecord: the same of a trace with one record that is made up, and
// checksums that hold. A state that is made up is read and not played: pure code
// trusts its own state.
func FuzzRecord(f *testing.F) {
	records, err := replay.Records(brief(f))
	if err != nil {
		f.Fatal(err)
	}
	segment, err := replay.Segmenter()
	if err != nil {
		f.Fatal(err)
	}
	seen := map[byte]bool{}
	for i, r := range records {
		if !seen[r.Kind] {
			seen[r.Kind] = true
			f.Add(i, r.Kind, r.Payload)
		}
	}
	f.Fuzz(func(t *testing.T, at int, kind byte, payload []byte) {
		made := append([]replay.Record(nil), records...)
		made[uint(at)%uint(len(made))] = replay.Record{Kind: kind, Payload: payload}
		data, err := segment(made)
		if err != nil {
			t.Fatal(err)
		}
		if whole(t, data) && kind != replay.KindStart {
			_ = play(data, small, nil)
		}
	})
}

// brief is a trace of one decision of each kind. It is short because it is played
// millions of times.
func brief(tb testing.TB) []byte {
	tb.Helper()
	f := newFleet(tb, 1)
	for range 3 {
		f.step(replay.HowTick)
	}
	f.record(replay.NewRecorder("test", 0))
	f.mark(2, isobar.Draining)
	f.grow(0, 1500)
	f.step(replay.HowTick)
	return written(tb, f.recorder)
}

// whole tells whether a trace can be read to its end. What comes before a damage
// is what was recorded: to play that again each time would find nothing.
func whole(t *testing.T, data []byte) bool {
	t.Helper()
	in, err := replay.NewReader(bytes.NewReader(data), small)
	if err != nil {
		t.Fatal(err)
	}
	return errors.Is(in.Read(), io.EOF)
}
