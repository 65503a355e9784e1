package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/store"
)

// both runs a test against each implementation.
func both(t *testing.T, test func(t *testing.T, s store.Store)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		m := store.NewMemory()
		defer closeNow(t, m)
		test(t, m)
	})
	t.Run("files", func(t *testing.T) {
		f := open(t, t.TempDir())
		defer closeNow(t, f)
		test(t, f)
	})
}

func open(tb testing.TB, dir string) *store.Files {
	tb.Helper()
	f, err := store.Open(dir, quiet())
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func closeNow(tb testing.TB, c interface{ Close() error }) {
	tb.Helper()
	if err := c.Close(); err != nil {
		tb.Error(err)
	}
}

func TestGetAndSwap(t *testing.T) {
	both(t, func(t *testing.T, s store.Store) {
		t.Helper()
		ctx := t.Context()
		if _, err := s.Get(ctx, "plan"); !errors.Is(err, isobar.ErrNotFound) {
			t.Fatalf("empty: %v", err)
		}
		if _, err := s.CompareAndSwap(ctx, "plan", 7, nil); !errors.Is(err, isobar.ErrStale) {
			t.Fatalf("a revision that never was: %v", err)
		}
		data := []byte("one")
		first, err := s.CompareAndSwap(ctx, "plan", 0, data)
		if err != nil || first == 0 {
			t.Fatal(first, err)
		}
		data[0] = 'X' // the store keeps no reference
		if _, err := s.CompareAndSwap(ctx, "plan", 0, []byte("two")); !errors.Is(err, isobar.ErrStale) {
			t.Fatalf("creating what is there: %v", err)
		}
		v, err := s.Get(ctx, "plan")
		if err != nil || string(v.Data) != "one" || v.Revision != first {
			t.Fatalf("got %q at %d, %v", v.Data, v.Revision, err)
		}
		v.Data[0] = 'X' // nor gives one out
		second, err := s.CompareAndSwap(ctx, "plan", first, nil)
		if err != nil || second <= first {
			t.Fatal(second, err)
		}
		if v, err := s.Get(ctx, "plan"); err != nil || len(v.Data) != 0 || v.Revision != second {
			t.Fatalf("got %q at %d, %v", v.Data, v.Revision, err)
		}
	})
}

// TestNotify: written is called once, before the value is there for sure, and not where
// nothing can be written.
func TestNotify(t *testing.T) {
	both(t, func(t *testing.T, s store.Store) {
		t.Helper()
		calls := 0
		count := func() { calls++ }
		first, err := s.CompareAndSwapNotify(t.Context(), "a", 0, []byte("one"), count)
		if err != nil || calls != 1 {
			t.Fatalf("%d calls, %v", calls, err)
		}
		if _, err := s.CompareAndSwapNotify(t.Context(), "a", first+1, []byte("two"), count); !errors.Is(err, isobar.ErrStale) || calls != 1 {
			t.Errorf("of another revision: %d calls, %v", calls, err)
		}
		if _, err := s.CompareAndSwapNotify(t.Context(), "a", first, []byte("two"), count); err != nil || calls != 2 {
			t.Errorf("%d calls, %v", calls, err)
		}
		if _, err := s.CompareAndSwapNotify(t.Context(), "a", first+1, make([]byte, store.MaxValueBytes+1), count); !errors.Is(err, store.ErrTooLarge) || calls != 2 {
			t.Errorf("too large: %d calls, %v", calls, err)
		}
	})
}

// TestNotifyComesWhenAllIsWritten: what is left then is the sync, which needs no space.
func TestNotifyComesWhenAllIsWritten(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	defer closeNow(t, f)
	data := bytes.Repeat([]byte("data"), 10_000)
	_, err := f.CompareAndSwapNotify(t.Context(), "a", 0, data, func() {
		have, err := os.ReadFile(filepath.Join(dir, "a.state.tmp"))
		if err != nil || !bytes.HasSuffix(have, data) {
			t.Errorf("%d bytes are written, %v", len(have), err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestKeys(t *testing.T) {
	both(t, func(t *testing.T, s store.Store) {
		t.Helper()
		for _, key := range []string{"", "..", "a/b", "A", "-a", "a.b", "LOCK", "a\x00", strings.Repeat("a", 65)} {
			if _, err := s.Get(t.Context(), key); !errors.Is(err, store.ErrKey) {
				t.Errorf("Get(%q): %v", key, err)
			}
			if _, err := s.CompareAndSwap(t.Context(), key, 0, nil); !errors.Is(err, store.ErrKey) {
				t.Errorf("CompareAndSwap(%q): %v", key, err)
			}
		}
		if _, err := s.CompareAndSwap(t.Context(), "0-a_z", 0, nil); err != nil {
			t.Error(err)
		}
	})
}

func TestCancelledContext(t *testing.T) {
	both(t, func(t *testing.T, s store.Store) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Get(ctx, "a"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := s.CompareAndSwap(ctx, "a", 0, nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, open := <-s.Watch(ctx, "a"); open {
			t.Error("the watch of an ended context tells something")
		}
	})
}

func TestWatchTellsTheLast(t *testing.T) {
	both(t, func(t *testing.T, s store.Store) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		ch := s.Watch(ctx, "a")
		other := s.Watch(ctx, "b")
		var revision uint64
		for i := range 10 {
			r, err := s.CompareAndSwap(ctx, "a", revision, fmt.Append(nil, i))
			if err != nil {
				t.Fatal(err)
			}
			revision = r
		}
		if v := <-ch; string(v.Data) != "9" || v.Revision != revision {
			t.Errorf("got %q at %d", v.Data, v.Revision)
		}
		cancel()
		if _, open := <-ch; open {
			t.Error("a value beyond the last")
		}
		if _, open := <-other; open {
			t.Error("a value of another key")
		}
	})
}

func TestSwapsAreAtomic(t *testing.T) {
	both(t, func(t *testing.T, s store.Store) {
		t.Helper()
		const workers, each = 4, 10
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for done := 0; done < each; {
					v, err := s.Get(t.Context(), "a")
					if err != nil && !errors.Is(err, isobar.ErrNotFound) {
						t.Error(err)
						return
					}
					_, err = s.CompareAndSwap(t.Context(), "a", v.Revision, append(v.Data, 'x'))
					if err == nil {
						done++
					} else if !errors.Is(err, isobar.ErrStale) {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		v, err := s.Get(t.Context(), "a")
		if err != nil || len(v.Data) != workers*each {
			t.Errorf("%d additions survive (%v), want %d", len(v.Data), err, workers*each)
		}
	})
}

// The file store does what the store in memory does, across restarts too.
func TestFilesBehaveLikeMemory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		files, memory := open(t, dir), store.NewMemory()
		defer func() { closeNow(t, files) }()
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			key := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "key")
			if rapid.Bool().Draw(rt, "restart") {
				closeNow(t, files)
				files = open(t, dir)
			}
			revision := rapid.Uint64Range(0, 3).Draw(rt, "revision")
			data := rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(rt, "data")
			r1, err1 := files.CompareAndSwap(t.Context(), key, revision, data)
			r2, err2 := memory.CompareAndSwap(t.Context(), key, revision, data)
			if r1 != r2 || errors.Is(err1, isobar.ErrStale) != errors.Is(err2, isobar.ErrStale) || (err1 == nil) != (err2 == nil) {
				rt.Fatalf("files give %d, %v; memory %d, %v", r1, err1, r2, err2)
			}
			v1, err1 := files.Get(t.Context(), key)
			v2, err2 := memory.Get(t.Context(), key)
			if !bytes.Equal(v1.Data, v2.Data) || v1.Revision != v2.Revision || (err1 == nil) != (err2 == nil) {
				rt.Fatalf("files hold %v, %v; memory %v, %v", v1, err1, v2, err2)
			}
		}
	})
}
