package filewatch_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"

	"github.com/isobar-xds/isobar/internal/filewatch"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// following runs Follow in a bubble of virtual time with notices of the test's
// own: real ones come from the kernel, which does not live in a bubble.
type following struct {
	events chan fsnotify.Event
	errs   chan error
	checks atomic.Int32
	asked  atomic.Int32 // for notices
	again  atomic.Int64 // nanoseconds
	log    strings.Builder
	stop   func()
}

func follow(t *testing.T, o filewatch.Options) *following {
	t.Helper()
	f := &following{events: make(chan fsnotify.Event), errs: make(chan error)}
	o.Logger = slog.New(slog.NewTextHandler(&f.log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		n := filewatch.Notices{Events: f.events, Errors: f.errs, Renew: func() { f.asked.Add(1) }}
		filewatch.Follow(ctx, n, o, func() time.Duration { f.checks.Add(1); return time.Duration(f.again.Load()) })
	}()
	f.stop = func() {
		cancel()
		<-done
	}
	return f
}

// after lets virtual time pass and everything come to rest.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (f *following) want(t *testing.T, checks int32) {
	t.Helper()
	if got := f.checks.Load(); got != checks {
		t.Errorf("%d checks, want %d", got, checks)
	}
}

func TestABurstIsOneCheck(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, filewatch.Options{})
		defer f.stop()
		after(time.Second)
		f.want(t, 1) // for what changed before the watch began
		for range 3 {
			f.events <- fsnotify.Event{}
			after(90 * time.Millisecond)
		}
		f.want(t, 1)
		after(20 * time.Millisecond)
		f.want(t, 2)
	})
}

func TestFilesThatNeverRestAreCheckedAllTheSame(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, filewatch.Options{})
		defer f.stop()
		after(time.Second)
		for range 25 {
			f.events <- fsnotify.Event{}
			after(50 * time.Millisecond)
		}
		f.want(t, 2)
	})
}

// TestSettling: a content counts once it has stayed for the time that it must, by
// looks at whatever times.
func TestSettling(t *testing.T) {
	var s filewatch.Settling
	begin := time.Unix(1000, 0)
	for _, look := range []struct {
		at       time.Duration
		content  byte
		wait     time.Duration
		changing time.Duration
	}{
		{0, 1, 2 * time.Second, 0},
		{time.Second, 1, time.Second, time.Second},
		{1500 * time.Millisecond, 2, 2 * time.Second, 1500 * time.Millisecond},
		{2 * time.Second, 1, 2 * time.Second, 2 * time.Second}, // what it was before has not stayed
		{4 * time.Second, 1, 0, 4 * time.Second},
		{30 * time.Second, 1, 0, 0}, // tried again
		{31 * time.Second, 3, 2 * time.Second, 0},
	} {
		wait, changing := s.Rest([32]byte{look.content}, begin.Add(look.at), 2*time.Second)
		if wait != look.wait || changing != look.changing {
			t.Errorf("at %v: wait %v, changing for %v; want %v, %v", look.at, wait, changing, look.wait, look.changing)
		}
	}
}

// TestCheckAsksToBeCalledAgain: without a notice, and before the next poll.
func TestCheckAsksToBeCalledAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, filewatch.Options{Poll: time.Hour})
		defer f.stop()
		f.again.Store(int64(10 * time.Second))
		after(35 * time.Second)
		f.want(t, 4)
	})
}

func TestEachPollChecksAndAsksForNotices(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, filewatch.Options{Poll: 10 * time.Second})
		defer f.stop()
		after(35 * time.Second)
		f.want(t, 4)
		if got := f.asked.Load(); got != 4 {
			t.Errorf("asked for notices %d times, want 4", got)
		}
	})
}

func TestTheEndOfNoticesIsNotTheEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, filewatch.Options{Poll: 10 * time.Second})
		defer f.stop()
		f.errs <- errors.New("queue overflow")
		close(f.events)
		close(f.errs)
		after(11 * time.Second)
		f.want(t, 2)
		if got := f.log.String(); !strings.Contains(got, "queue overflow") {
			t.Errorf("the failure is not told:\n%s", got)
		}
	})
}

// TestDirectoriesAreWatched: two files in two directories, one of which is
// replaced by a rename, as editors and Kubernetes do.
func TestDirectoriesAreWatched(t *testing.T) {
	first, second := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	checked := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		filewatch.Watch(ctx, []string{first, second}, filewatch.Options{Quiet: time.Millisecond, Poll: time.Hour, Logger: slog.New(slog.DiscardHandler)}, func() time.Duration { checked <- struct{}{}; return 0 })
	}()
	defer func() {
		cancel()
		<-done
	}()
	<-checked
	for _, path := range []string{first, second} {
		if err := os.WriteFile(path+".new", []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		select {
		case <-checked:
		case <-time.After(time.Minute):
			t.Fatalf("nobody noticed %s", path)
		}
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("12345678"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := filewatch.Read(path, 8); err != nil || string(data) != "12345678" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := filewatch.Read(path, 7); !errors.Is(err, filewatch.ErrTooLarge) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v, want an error that names the file and the limit", err)
	}
	if _, err := filewatch.Read(path+"x", 7); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestReadComesBack: a pipe instead of a file blocks nobody for longer than
// it may, and one that ends is read.
func TestReadComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := filewatch.Read(path, 100); err != nil || len(data) != 0 {
		t.Errorf("nobody writes: %q, %v", data, err)
	}
	writer, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := filewatch.ReadWithin(path, 100, time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the writer says nothing: %v", err)
	}
	if _, err := writer.WriteString("secret"); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(path, os.O_RDONLY, 0) // keeps the text in the pipe
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if data, err := filewatch.Read(path, 100); err != nil || string(data) != "secret" {
		t.Errorf("a pipe that ends: %q, %v", data, err)
	}
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
	if _, err := filewatch.Read(filepath.Dir(path), 100); err == nil {
		t.Error("a directory was read")
	}
	if _, err := filewatch.Read("/dev/zero", 100); !errors.Is(err, filewatch.ErrTooLarge) {
		t.Errorf("what does not end: %v", err)
	}
}

func TestTheTriggerAsksAllAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var trigger filewatch.Trigger
		trigger.Fire() // nobody is there yet
		first, second := follow(t, filewatch.Options{Trigger: &trigger, Poll: time.Hour}), follow(t, filewatch.Options{Trigger: &trigger, Poll: time.Hour})
		after(time.Second)
		first.want(t, 1)
		trigger.Fire()
		after(time.Millisecond)
		first.want(t, 2)
		second.want(t, 2)
		first.stop()
		trigger.Fire()
		after(time.Millisecond)
		first.want(t, 2)
		second.want(t, 3)
		second.stop()
	})
}

// A large file is read into memory that was allocated at once.
func TestReadAllocatesOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(path, make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func() {
		if data, err := filewatch.Read(path, 8<<20); err != nil || len(data) != 8<<20 {
			t.Errorf("%d bytes, %v", len(data), err)
		}
	}
	if got := testing.AllocsPerRun(3, read); got > 20 {
		t.Errorf("%v allocations for one file, want 20 at most", got)
	}
}
