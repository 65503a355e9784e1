package store_test

import (
	"bytes"
	"testing"
)

// BenchmarkSave replaces a value of 12 MB, as a group's plan of 1,000 services has.
func BenchmarkSave(b *testing.B) {
	f := open(b, b.TempDir())
	defer closeNow(b, f)
	data := bytes.Repeat([]byte("isobar"), 2<<20)
	b.SetBytes(int64(len(data)))
	revision := uint64(0)
	for b.Loop() {
		var err error
		if revision, err = f.CompareAndSwap(b.Context(), "a", revision, data); err != nil {
			b.Fatal(err)
		}
	}
}
