package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/store"
)

func quiet() store.Options { return store.Options{Logger: slog.New(slog.DiscardHandler)} }

// twoVersions makes a directory whose key "a" was "old" and is "new", and
// returns the bytes of its two files.
func twoVersions(tb testing.TB) (dir string, current, previous []byte) {
	tb.Helper()
	dir = tb.TempDir()
	f := open(tb, dir)
	defer closeNow(tb, f)
	revision, err := f.CompareAndSwap(tb.Context(), "a", 0, []byte("old"))
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := f.CompareAndSwap(tb.Context(), "a", revision, []byte("new")); err != nil {
		tb.Fatal(err)
	}
	return dir, readBytes(tb, dir, "a.state"), readBytes(tb, dir, "a.state.prev")
}

func readBytes(tb testing.TB, dir, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func writeBytes(tb testing.TB, dir, name string, b []byte) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
		tb.Fatal(err)
	}
}

// damages gives every way to cut a file and to flip one of its bits.
func damages(file []byte, yield func([]byte)) {
	for n := range file {
		yield(file[:n])
	}
	for i := range file {
		for bit := range 8 {
			b := bytes.Clone(file)
			b[i] ^= 1 << bit
			yield(b)
		}
	}
	yield(append(bytes.Clone(file), 0))
}

func TestDamageFallsBackToTheVersionBefore(t *testing.T) {
	dir, current, _ := twoVersions(t)
	damages(current, func(b []byte) {
		writeBytes(t, dir, "a.state", b)
		f := open(t, dir)
		v, err := f.Get(t.Context(), "a")
		if err != nil || string(v.Data) != "old" || v.Revision != 1 {
			t.Fatalf("%x: got %q at %d, %v", b, v.Data, v.Revision, err)
		}
		closeNow(t, f)
	})
}

// TestWhatIsNoFileFallsBackToo: a directory or a pipe instead of a version,
// or a file that gives an I/O error, neither ends nor stops the start.
func TestWhatIsNoFileFallsBackToo(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"EIO":       func(path string) error { return os.Symlink("/proc/self/mem", path) }, // nothing is mapped at 0
	} {
		dir, _, _ := twoVersions(t)
		path := filepath.Join(dir, "a.state")
		if err := errors.Join(os.Remove(path), put(path)); err != nil {
			t.Fatal(err)
		}
		f := open(t, dir)
		if v, err := f.Get(t.Context(), "a"); err != nil || string(v.Data) != "old" {
			t.Errorf("%s: %q, %v", name, v.Data, err)
		}
		closeNow(t, f)
	}
}

// TestFilesThatAreGoneAreTold: who removed the directory of a running server
// reads what it means.
func TestFilesThatAreGoneAreTold(t *testing.T) {
	dir, _, _ := twoVersions(t)
	f := open(t, dir)
	defer closeNow(t, f)
	v, err := f.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	// Nothing that the caller could read again would help, as it does after ErrStale.
	_, err = f.CompareAndSwap(t.Context(), "a", v.Revision, []byte("newer"))
	if !errors.Is(err, store.ErrGone) || errors.Is(err, isobar.ErrStale) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "put them back") {
		t.Errorf("got %v", err)
	}
}

func TestDamageOfTheVersionBeforeIsHarmless(t *testing.T) {
	dir, _, previous := twoVersions(t)
	damages(previous, func(b []byte) {
		writeBytes(t, dir, "a.state.prev", b)
		f := open(t, dir)
		if v, err := f.Get(t.Context(), "a"); err != nil || string(v.Data) != "new" {
			t.Fatalf("%x: got %q, %v", b, v.Data, err)
		}
		closeNow(t, f)
	})
}

// A crash can leave a half-written temporary file, and a current version that
// was renamed away before the new one took its place.
func TestCrashWhileWriting(t *testing.T) {
	dir, current, previous := twoVersions(t)
	for n := range len(current) + 1 {
		for _, renamed := range []bool{false, true} {
			writeBytes(t, dir, "a.state.tmp", current[:n])
			writeBytes(t, dir, "a.state", current)
			writeBytes(t, dir, "a.state.prev", previous)
			if renamed {
				if err := os.Rename(filepath.Join(dir, "a.state"), filepath.Join(dir, "a.state.prev")); err != nil {
					t.Fatal(err)
				}
			}
			f := open(t, dir)
			v, err := f.Get(t.Context(), "a")
			if err != nil || string(v.Data) != "new" || v.Revision != 2 {
				t.Fatalf("%d bytes, renamed %v: got %q at %d, %v", n, renamed, v.Data, v.Revision, err)
			}
			if next, err := f.CompareAndSwap(t.Context(), "a", 2, []byte("next")); err != nil || next <= 2 {
				t.Fatal(next, err)
			}
			closeNow(t, f)
		}
	}
}

// The damaged version's number is not given again, and the good version stays
// the fallback when the next one is written.
func TestWritingAfterARecovery(t *testing.T) {
	dir, current, _ := twoVersions(t)
	writeBytes(t, dir, "a.state", current[:10])
	var logged strings.Builder
	registry := prometheus.NewRegistry()
	f, err := store.Open(dir, store.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil)), Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	defer closeNow(t, f)
	v, err := f.Get(t.Context(), "a")
	if err != nil || v.Revision != 1 {
		t.Fatal(v, err)
	}
	next, err := f.CompareAndSwap(t.Context(), "a", 1, []byte("next"))
	if err != nil || next != 3 {
		t.Fatalf("revision %d, %v, want 3: 2 was the damaged one", next, err)
	}
	if !strings.Contains(logged.String(), "using its previous version") || strings.Count(logged.String(), "\n") != 1 {
		t.Errorf("logged %q", logged.String())
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(
		"# HELP isobar_store_recoveries_total Lost or damaged state files that Isobar replaced by the previous version.\n"+
			"# TYPE isobar_store_recoveries_total counter\nisobar_store_recoveries_total 1\n"), "isobar_store_recoveries_total"); err != nil {
		t.Error(err)
	}
	writeBytes(t, dir, "a.state", nil)
	if v, err := f.Get(t.Context(), "a"); err != nil || string(v.Data) != "old" {
		t.Errorf("got %q, %v, want the version that was good", v.Data, err)
	}
}

func TestBothDamaged(t *testing.T) {
	dir, current, _ := twoVersions(t)
	writeBytes(t, dir, "a.state", current[:20])
	writeBytes(t, dir, "a.state.prev", nil)
	f := open(t, dir)
	defer closeNow(t, f)
	if _, err := f.Get(t.Context(), "a"); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "a.state.prev") {
		t.Errorf("got %v", err)
	}
	if _, err := f.CompareAndSwap(t.Context(), "a", 0, nil); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("what is left is overwritten: %v", err)
	}
	if string(readBytes(t, dir, "a.state")) != string(current[:20]) {
		t.Error("the damaged file was touched")
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	for _, name := range []string{"a.state", "a.state.prev"} {
		t.Run(name, func(t *testing.T) {
			dir, current, _ := twoVersions(t)
			writeBytes(t, dir, "a.state", current[:20])
			newer := bytes.Clone(current)
			binary.BigEndian.PutUint32(newer[8:], 2)
			binary.BigEndian.PutUint32(newer[12:], crc32.Checksum(newer[:12], crc32.MakeTable(crc32.Castagnoli)))
			writeBytes(t, dir, name, newer)
			f := open(t, dir)
			defer closeNow(t, f)
			if _, err := f.Get(t.Context(), "a"); !errors.Is(err, store.ErrNewerFormat) {
				t.Errorf("Get: %v", err)
			}
			if _, err := f.CompareAndSwap(t.Context(), "a", 1, nil); !errors.Is(err, store.ErrNewerFormat) {
				t.Errorf("CompareAndSwap: %v", err)
			}
		})
	}
}

func TestDirectoryIsLocked(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir)
	if _, err := store.Open(dir, quiet()); !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), "process ") {
		t.Errorf("got %v", err)
	}
	closeNow(t, first)
	closeNow(t, first) // twice is once
	if _, err := first.Get(t.Context(), "a"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Get after Close: %v", err)
	}
	if _, open := <-first.Watch(t.Context(), "a"); open {
		t.Error("a watch after Close tells something")
	}
	closeNow(t, open(t, dir))
}

// TestEitherLockKeepsOthersOut: of the directory, which is all that a process has
// that began on a full disk, and of the file, which is all there is on some file
// systems.
func TestEitherLockKeepsOthersOut(t *testing.T) {
	dir := t.TempDir()
	closeNow(t, open(t, dir))
	for _, name := range []string{".", "LOCK"} {
		file, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Open(dir, quiet()); !errors.Is(err, store.ErrLocked) {
			t.Errorf("%s is locked, got %v", name, err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		closeNow(t, open(t, dir))
	}
}

func TestDirectoryThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	writeBytes(t, dir, "file", nil)
	if _, err := store.Open(filepath.Join(dir, "file"), quiet()); err == nil || !strings.Contains(err.Error(), "state directory") || !strings.Contains(err.Error(), "give state_dir a directory") {
		t.Errorf("got %v", err)
	}
}

// A write that fails leaves what was there.
func TestFailedWrite(t *testing.T) {
	dir, _, _ := twoVersions(t)
	f := open(t, dir)
	defer closeNow(t, f)
	if err := os.Mkdir(filepath.Join(dir, "a.state.tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := f.CompareAndSwap(t.Context(), "a", 2, []byte("x")); err == nil || errors.Is(err, isobar.ErrStale) {
		t.Fatalf("got %v", err)
	}
	if v, err := f.Get(t.Context(), "a"); err != nil || string(v.Data) != "new" {
		t.Errorf("got %q, %v", v.Data, err)
	}
}

// A crash between the two renames of a write leaves no current version. What
// was about to become it is complete, and serves where the one before is
// damaged later; where it is damaged itself, the one before serves.
func TestCrashBetweenRenames(t *testing.T) {
	for name, want := range map[string]string{"a.state.prev": "new", "a.state.tmp": "old"} {
		t.Run(name+" damaged", func(t *testing.T) {
			dir, _, _ := twoVersions(t)
			if err := os.Rename(filepath.Join(dir, "a.state"), filepath.Join(dir, "a.state.tmp")); err != nil {
				t.Fatal(err)
			}
			damaged := readBytes(t, dir, name)
			damaged[len(damaged)-1] ^= 1
			writeBytes(t, dir, name, damaged)
			f := open(t, dir)
			defer closeNow(t, f)
			v, err := f.Get(t.Context(), "a")
			if err != nil || string(v.Data) != want {
				t.Fatalf("got %q, %v; want %q", v.Data, err, want)
			}
			if _, err := f.CompareAndSwap(t.Context(), "a", v.Revision, []byte("next")); err != nil {
				t.Error(err)
			}
		})
	}
}

// The first version of a key has none before it, and can be damaged
// nevertheless.
func TestFirstVersionDamaged(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	if _, err := f.CompareAndSwap(t.Context(), "a", 0, []byte("first")); err != nil {
		t.Fatal(err)
	}
	closeNow(t, f)
	damaged := readBytes(t, dir, "a.state")
	damaged[20] ^= 4
	writeBytes(t, dir, "a.state", damaged)
	f = open(t, dir)
	defer closeNow(t, f)
	if v, err := f.Get(t.Context(), "a"); err != nil || string(v.Data) != "first" {
		t.Errorf("got %q, %v", v.Data, err)
	}
}

// TestDamageBetweenWrites asserts that a version that is damaged while its process runs does not
// take the place of the good one before it, whatever is damaged.
func TestDamageBetweenWrites(t *testing.T) {
	save := func(f *store.Files, revision uint64, data string) uint64 {
		t.Helper()
		next, err := f.CompareAndSwap(t.Context(), "a", revision, []byte(data))
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	try := func(damage func(current []byte) []byte, want string) {
		t.Helper()
		dir := t.TempDir()
		f := open(t, dir)
		defer closeNow(t, f)
		save(f, save(f, 0, "first"), "second")
		writeBytes(t, dir, "a.state", damage(readBytes(t, dir, "a.state")))
		v, err := f.Get(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		save(f, v.Revision, "third")
		writeBytes(t, dir, "a.state", nil)
		if v, err := f.Get(t.Context(), "a"); err != nil || string(v.Data) != want {
			t.Errorf("got %q, %v; want %s", v.Data, err, want)
		}
	}
	try(func(b []byte) []byte { return b }, "second")
	for i := range len("second") {
		try(func(b []byte) []byte { b[len(b)-1-i] ^= 1; return b }, "first")
	}
	try(func(b []byte) []byte { return b[:len(b)-1] }, "first")
	try(func(b []byte) []byte { return append(b, 0) }, "first")
	try(func(b []byte) []byte { b[30] ^= 1; return b }, "first")
}
