package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/store"
)

// TestDirectoryThatIsReplaced: where another directory takes the name of the one that
// the process has locked, also one with the same files, nothing is written there, and
// all goes on when the first one is back.
func TestDirectoryThatIsReplaced(t *testing.T) {
	dir, _, _ := twoVersions(t)
	f := open(t, dir)
	defer closeNow(t, f)
	v, err := f.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	other := dir + ".other"
	if err := errors.Join(os.Rename(dir, dir+".away"), os.CopyFS(other, os.DirFS(dir+".away")), os.Rename(other, dir)); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, "a.state"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.CompareAndSwap(t.Context(), "a", v.Revision, []byte("newer"))
	if !errors.Is(err, store.ErrGone) || !strings.Contains(err.Error(), "put back the one that this process has locked, or restart") {
		t.Errorf("got %v", err)
	}
	if after, err := os.ReadFile(filepath.Join(dir, "a.state")); err != nil || string(after) != string(before) {
		t.Errorf("%q was written into the other directory, %v", after, err)
	}
	if err := errors.Join(os.Rename(dir, other), os.Rename(dir+".away", dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.CompareAndSwap(t.Context(), "a", v.Revision, []byte("newer")); err != nil {
		t.Errorf("with the directory back: %v", err)
	}
}
