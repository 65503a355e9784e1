package replay

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"
)

// fataler is what tests and rapid have in common.
type fataler interface{ Fatal(args ...any) }

// written makes a segment of records.
func written(t fataler, records [][]byte, flush func(i int) bool) []byte {
	var out bytes.Buffer
	c, err := newChunker(&out)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range records {
		if err := c.record(byte(i), r); err != nil {
			t.Fatal(err)
		}
		if flush(i) {
			if err := c.flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.flush(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func drawRecords(t *rapid.T) [][]byte {
	out := make([][]byte, rapid.IntRange(0, 3).Draw(t, "records"))
	for i := range out {
		n := rapid.SampledFrom([]int{0, 1, 127, 128, 129, 5000, 5001, 5002, 5003, maxChunk + 17}).Draw(t, "length")
		out[i] = make([]byte, n)
		for j := range out[i] {
			out[i][j] = byte(j * (i + 1) >> 3)
		}
	}
	return out
}

// readAll returns the records of all segments.
func readAll(data []byte) (out [][]byte, err error) {
	u := newUnchunker(bytes.NewReader(data))
	for {
		if err := u.segment(); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return out, err
		}
		for {
			_, payload, err := u.record(DefaultMaxRecord)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return out, err
			}
			out = append(out, bytes.Clone(payload))
		}
	}
}

func same(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// TestChunks: what was written is read, segments after one another too; a copy
// is the same; and of a segment that is cut anywhere, what is whole is read and
// the cut is told.
func TestChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t)
		data := written(t, records, func(int) bool { return rapid.Bool().Draw(t, "flush") })
		if got, err := readAll(data); err != nil || !same(got, records) {
			t.Fatalf("read %d of %d records, %v", len(got), len(records), err)
		}
		two := append(bytes.Clone(data), data...)
		if got, err := readAll(two); err != nil || len(got) != 2*len(records) {
			t.Fatalf("read %d of %d records of two segments, %v", len(got), 2*len(records), err)
		}
		var copied bytes.Buffer
		if err := Copy(&copied, bytes.NewReader(two)); err != nil || !bytes.Equal(copied.Bytes(), two) {
			t.Fatalf("the copy differs, %v", err)
		}
		if len(data) == len(mark)+2 {
			return
		}
		at := rapid.IntRange(len(mark)+2, len(data)-1).Draw(t, "cut")
		got, err := readAll(data[:at])
		if len(got) > len(records) || !same(got, records[:len(got)]) {
			t.Fatalf("cut at %d of %d: other records", at, len(data))
		}
		if len(got) == len(records) || err != nil && !errors.Is(err, ErrCut) {
			t.Fatalf("cut at %d of %d: %d records, %v", at, len(data), len(got), err)
		}
		copied.Reset()
		if err := Copy(&copied, bytes.NewReader(data[:at])); err != nil && !errors.Is(err, ErrCut) {
			t.Fatal(err)
		}
		if again, _ := readAll(copied.Bytes()); !same(again, got) {
			t.Fatalf("the copy of what is whole has %d records, want %d", len(again), len(got))
		}
	})
}

// TestDamagedChunks: a flipped bit is found, and a newer format is refused.
func TestDamagedChunks(t *testing.T) {
	data := written(t, [][]byte{[]byte("one"), []byte("two"), make([]byte, 3000)}, func(int) bool { return true })
	for i := range data {
		for bit := range 8 {
			bad := bytes.Clone(data)
			bad[i] ^= 1 << bit
			if got, err := readAll(bad); err == nil && len(got) == 3 {
				t.Fatalf("bit %d of byte %d is wrong, and nobody sees it", bit, i)
			}
		}
	}
	newer := bytes.Clone(data)
	newer[len(mark)+1]++
	if _, err := readAll(newer); !errors.Is(err, ErrFormat) {
		t.Errorf("a newer format: %v", err)
	}
	if _, err := readAll([]byte("services: []\n")); !errors.Is(err, ErrFormat) {
		t.Errorf("another file: %v", err)
	}
}
