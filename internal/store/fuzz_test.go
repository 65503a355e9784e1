package store_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/isobar-xds/isobar/internal/store"
)

// FuzzFile: whatever a state file holds, reading it gives data that was written
// or falls back to the version before; and what is written next is read again.
func FuzzFile(f *testing.F) {
	seed, err := os.ReadFile(filepath.Join("testdata", "a.state"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(seed[:40])
	f.Add([]byte("ISOBARST"))
	f.Add([]byte(nil))
	dir, _, before := twoVersions(f) // one directory for all: it is made again below
	f.Fuzz(func(t *testing.T, file []byte) {
		writeBytes(t, dir, "a.state.prev", before)
		writeBytes(t, dir, "a.state", file)
		s := open(t, dir)
		defer closeNow(t, s)
		v, err := s.Get(t.Context(), "a")
		if errors.Is(err, store.ErrNewerFormat) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if string(v.Data) != "old" && !bytes.HasSuffix(file, v.Data) {
			t.Fatalf("read %q out of nowhere", v.Data)
		}
		next, err := s.CompareAndSwap(t.Context(), "a", v.Revision, []byte("next"))
		if err != nil || next <= v.Revision {
			t.Fatal(next, err)
		}
		if v, err := s.Get(t.Context(), "a"); err != nil || string(v.Data) != "next" {
			t.Fatalf("got %q, %v", v.Data, err)
		}
	})
}
