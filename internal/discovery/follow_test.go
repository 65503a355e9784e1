package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/isobar-xds/isobar/internal/filewatch"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// These tests are inside the package because real notices come from the kernel,
// which does not live in a bubble of virtual time: they hand filewatch.Follow
// events of their own. watch_test.go covers the rest with real files.

type bench struct {
	path   string
	events chan fsnotify.Event
	stop   func()

	mu     sync.Mutex
	got    []string
	refuse error
	log    strings.Builder
}

// Write takes what is logged.
func (b *bench) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(line)
}

func (b *bench) logged() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

func (b *bench) refuseWith(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = err
}

// start follows a file that holds "old".
func start(t *testing.T, o WatchOptions) *bench {
	t.Helper()
	b := &bench{path: filepath.Join(t.TempDir(), "f"), events: make(chan fsnotify.Event)}
	b.write(t, "old")
	o.Current = []byte("old")
	o.Logger = slog.New(slog.NewTextHandler(b, nil))
	f := newFollower(b.path, o, func(data []byte) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.got = append(b.got, string(data))
		return b.refuse
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		filewatch.Follow(ctx, filewatch.Notices{Events: b.events}, f.timing(), f.check)
	}()
	b.stop = func() {
		cancel()
		<-done
	}
	return b
}

func (b *bench) write(t *testing.T, content string) {
	t.Helper()
	if err := os.WriteFile(b.path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	// The kernel's clock does not live in the bubble.
	if err := os.Chtimes(b.path, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) notify() { b.events <- fsnotify.Event{Name: b.path, Op: fsnotify.Write} }

// after lets virtual time pass and everything come to rest.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (b *bench) want(t *testing.T, got ...string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if strings.Join(b.got, "|") != strings.Join(got, "|") {
		t.Errorf("handed on %q, want %q", b.got, got)
	}
}

func TestPollFindsWhatNobodyTold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t, WatchOptions{Poll: 10 * time.Second})
		defer b.stop()
		after(time.Second)
		b.write(t, "new")
		after(8 * time.Second)
		b.want(t)
		after(4 * time.Second)
		b.want(t, "new")
	})
}

func TestChangeBeforeTheWatchBegan(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t, WatchOptions{})
		defer b.stop()
		b.write(t, "new") // after it was read as current, before the first notice could come
		after(2 * time.Second)
		b.want(t, "new")
	})
}

func TestRefusedContentIsToldOnceAndTriedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t, WatchOptions{Poll: 10 * time.Second})
		defer b.stop()
		b.refuseWith(errors.New("f:1:1: bad"))
		b.write(t, "bad")
		after(25 * time.Second)
		b.want(t, "bad", "bad", "bad")
		if n := strings.Count(b.logged(), "f:1:1: bad"); n != 1 {
			t.Errorf("told %d times:\n%s", n, b.logged())
		}
		b.refuseWith(nil)
		after(10 * time.Second)
		b.want(t, "bad", "bad", "bad", "bad")
		if !strings.Contains(b.logged(), "reloaded") {
			t.Errorf("no word of success:\n%s", b.logged())
		}
	})
}

// A part of a file that is written in parts is a file that lost services: it counts
// when it has stayed the same, whether notices come or not.
func TestFileWrittenInParts(t *testing.T) {
	for _, tc := range []struct {
		name  string
		parts []string
		pause time.Duration
	}{
		{name: "two parts", parts: []string{"half", "whole"}, pause: 200 * time.Millisecond},
		{name: "truncated, then written slowly", parts: []string{"", "w", "wh", "who", "whol", "whole"}, pause: 1400 * time.Millisecond},
		{name: "many times a second", parts: strings.Split(strings.Repeat("half,more,", 100)+"whole", ","), pause: 70 * time.Millisecond},
	} {
		for _, notices := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, notices %v", tc.name, notices), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					b := start(t, WatchOptions{Poll: 2 * time.Second})
					defer b.stop()
					after(1900 * time.Millisecond) // a poll falls into it
					for _, part := range tc.parts {
						b.write(t, part)
						if notices {
							b.notify()
						}
						b.want(t)
						after(tc.pause)
					}
					after(4 * time.Second)
					b.want(t, "whole")
				})
			})
		}
	}
}

// A file that is removed and made again is away for a moment; what is in force says nothing of it.
func TestReplacedFileIsNotMissing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t, WatchOptions{})
		defer b.stop()
		if err := os.Remove(b.path); err != nil {
			t.Fatal(err)
		}
		b.notify()
		after(time.Second)
		b.write(t, "new")
		b.notify()
		after(2 * time.Second)
		b.want(t, "new")
		if strings.Contains(b.logged(), "rejected") {
			t.Errorf("told of a file that was away for a second:\n%s", b.logged())
		}
	})
}

// A file that never rests is told, and what came before stays in force.
func TestFileThatNeverRests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var why atomic.Pointer[error]
		b := start(t, WatchOptions{Refused: func(err error) { why.Store(&err) }})
		defer b.stop()
		for i := range 70 {
			b.write(t, fmt.Sprint(i))
			b.notify()
			after(500 * time.Millisecond)
		}
		b.want(t)
		if told := why.Load(); told == nil || !errors.Is(*told, errChanging) {
			t.Errorf("told %v", told)
		}
		after(2 * time.Second)
		b.want(t, "69")
		if told := why.Load(); *told != nil {
			t.Errorf("told %v after it came to rest", *told)
		}
	})
}

func TestMissingAndTooLargeFilesKeepTheLastGood(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t, WatchOptions{MaxBytes: 8})
		defer b.stop()
		if err := os.Remove(b.path); err != nil {
			t.Fatal(err)
		}
		b.notify()
		after(2 * time.Second)
		b.write(t, "far too long")
		b.notify()
		after(2 * time.Second)
		b.want(t)
		for _, want := range []string{"no such file", filewatch.ErrTooLarge.Error()} {
			if !strings.Contains(b.logged(), want) {
				t.Errorf("%q is not told:\n%s", want, b.logged())
			}
		}
		b.write(t, "old")
		b.notify()
		after(2 * time.Second)
		b.want(t)
		if !strings.Contains(b.logged(), "as it was before") {
			t.Errorf("no word of the end:\n%s", b.logged())
		}
	})
}
