package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// However often a key was saved, what a damaged file falls back to is the
// version before it, not the first one.
func TestTheVersionBeforeIsTheLastButOne(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	for revision := range uint64(5) {
		if _, err := f.CompareAndSwap(t.Context(), "a", revision, fmt.Appendf(nil, "v%d", revision+1)); err != nil {
			t.Fatal(err)
		}
	}
	closeNow(t, f)
	writeBytes(t, dir, "a.state", []byte("damaged"))
	f = open(t, dir)
	defer closeNow(t, f)
	if v, err := f.Get(t.Context(), "a"); err != nil || string(v.Data) != "v4" || v.Revision != 4 {
		t.Errorf("got %q at %d, %v; want v4", v.Data, v.Revision, err)
	}
}

// A write that was cut short when nothing but the last rename was missing is
// completed: the version before it may be damaged by then.
func TestAWholeWriteIsCompleted(t *testing.T) {
	dir, current, previous := twoVersions(t)
	if err := os.Remove(filepath.Join(dir, "a.state")); err != nil {
		t.Fatal(err)
	}
	writeBytes(t, dir, "a.state.prev", previous)
	writeBytes(t, dir, "a.state.tmp", current)
	f := open(t, dir)
	defer closeNow(t, f)
	if v, err := f.Get(t.Context(), "a"); err != nil || string(v.Data) != "new" || v.Revision != 2 {
		t.Errorf("got %q at %d, %v; want the new one", v.Data, v.Revision, err)
	}
}
