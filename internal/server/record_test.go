package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/replay"
)

// recording is what a server writes until stop is called.
type recording struct {
	mu   sync.Mutex
	data bytes.Buffer
	stop func()
	done chan error
}

func (r *recording) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.data.Write(b)
}

// record records until the recording is stopped.
func (w *world) record() *recording {
	ctx, cancel := context.WithCancel(w.ctx)
	r := &recording{stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- w.server.Record(ctx, r) }()
	synctest.Wait()
	return r
}

func (r *recording) end(t *testing.T) []byte {
	t.Helper()
	r.stop()
	if err := <-r.done; err != nil {
		t.Fatalf("recording: %v", err)
	}
	return r.data.Bytes()
}

// replayed is what became of a trace.
type replayed struct {
	how      map[string]int
	plans    []uint64
	segments int
}

// replayOf decides everything again and wants the same.
func replayOf(t *testing.T, data []byte) replayed {
	t.Helper()
	in, err := replay.NewReader(bytes.NewReader(data), replay.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := replayed{how: map[string]int{}}
	p := replay.NewPlayer(in)
	for {
		s, err := p.Next()
		if errors.Is(err, io.EOF) {
			out.segments = p.Segments()
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if s.Difference != "" {
			t.Fatalf("%s at %v, version %d: %s", s.How, s.Now, s.Turn.Version, s.Difference)
		}
		out.how[s.How]++
		if s.Plan != nil {
			out.plans = append(out.plans, s.Plan.Version)
		}
	}
}

// TestReplayIsTheSame: a recording that begins in the middle of everything is
// decided again byte for byte, through steps of the load, failures, orders and
// clients that come and go.
func TestReplayIsTheSame(t *testing.T) {
	inWorld(t, checked(t), func(w *world) {
		var tr truth
		stops := w.checkers(&tr, fiveZones...)
		w.start(growing(time.Now().Add(3 * time.Minute))...)
		w.settle(90 * time.Second)
		tr.set("10.2.0.1:80", fleet.ProbeHangs) // it is on its way when the recording begins
		w.settle(7 * time.Second)
		r := w.record()
		from := w.server.Plan().Version
		w.settle(2 * time.Minute)
		var operated admin.Operated
		w.order("/v1/pause", `{"service": "checkout", "who": "me"}`, &operated)
		tr.set("10.2.0.1:80", fleet.ProbePasses)
		stops[0]() // a checker goes away
		w.settle(30 * time.Second)
		w.order("/v1/resume", `{"service": "checkout", "who": "me"}`, &operated)
		w.settle(30 * time.Second)
		w.order("/v1/rollback", `{"version": "`+versionText(from)+`", "who": "me"}`, &operated)
		for _, e := range []string{"10.2.0.1:80", "10.2.0.2:80", "10.2.0.3:80", "10.2.0.4:80"} {
			tr.set(e, fleet.ProbeHangs)
		}
		w.settle(time.Minute)
		w.order("/v1/resume", `{"who": "me"}`, &operated)
		last := w.settle(2 * time.Minute).Version
		data := r.end(t)
		got := replayOf(t, data)
		if got.how[replay.HowTick] < 60 || got.how[replay.HowReapply] < 4 || got.how[replay.HowRollback] != 1 {
			t.Errorf("decided %v", got.how)
		}
		if first, end := got.plans[0], got.plans[len(got.plans)-1]; first != from+1 || end != last || len(got.plans) != int(last-from) {
			t.Errorf("replayed %d plans from %d to %d, want %d to %d", len(got.plans), first, end, from+1, last)
		}
		t.Logf("%d bytes for %d plans, %v", len(data), len(got.plans), got.how)
		var anonymous bytes.Buffer
		if err := replay.Anonymise(&anonymous, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		if other := replayOf(t, anonymous.Bytes()); !slices.Equal(other.plans, got.plans) {
			t.Errorf("under pseudonyms %d plans, were %d", len(other.plans), len(got.plans))
		}
	})
}

func versionText(v uint64) string { return strconv.FormatUint(v, 10) }

// TestRecordingsGivenUp: whoever goes away before the recording has begun leaves
// nothing that the loop goes on telling.
func TestRecordingsGivenUp(t *testing.T) {
	inWorld(t, configuration(t), func(w *world) {
		w.start(everywhere(300)...)
		gone, leave := context.WithCancel(w.ctx)
		leave()
		for range 100 { // the loop is asked in about half of them
			if err := w.server.Record(gone, io.Discard); !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v", err)
			}
		}
		r := w.record()
		w.settle(time.Minute)
		replayOf(t, r.end(t))
	})
}
