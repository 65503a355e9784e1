package replay

import (
	"bytes"
	"compress/flate"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

// Record is one record of a segment, for tests that make up their own.
type Record struct {
	Kind    byte
	Payload []byte
}

// KindStart is the kind of the record with the state.
const KindStart = kindStart

// Records takes a segment apart.
func Records(data []byte) (out []Record, err error) {
	u := newUnchunker(bytes.NewReader(data))
	if err := u.segment(); err != nil {
		return nil, err
	}
	for {
		kind, payload, err := u.record(DefaultMaxRecord)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, Record{kind, bytes.Clone(payload)})
	}
}

// Segmenter puts segments together, one at a time. It does not compress them, and
// uses one writer for all: else that were most of the work of who makes millions.
func Segmenter() (func([]Record) ([]byte, error), error) {
	c, err := newChunker(io.Discard)
	if err != nil {
		return nil, err
	}
	c.deflate, err = flate.NewWriter(io.Discard, flate.NoCompression)
	if err != nil {
		return nil, err
	}
	return func(records []Record) ([]byte, error) {
		out := bytes.NewBuffer(head())
		c.w = out
		for _, r := range records {
			if err := c.record(r.Kind, r.Payload); err != nil {
				return nil, err
			}
		}
		err := c.flush()
		return out.Bytes(), err
	}, nil
}

// Read reads all records without playing them.
func (r *Reader) Read() error {
	for {
		if _, err := r.next(); err != nil {
			return err
		}
	}
}

// Texts is all records of a trace, unpacked.
func Texts(tb testing.TB, data []byte) string {
	tb.Helper()
	records, err := Records(data)
	if err != nil {
		tb.Fatal(err)
	}
	var out strings.Builder
	for _, r := range records {
		out.Write(r.Payload)
	}
	return out.String()
}

// Pseudonyms returns those of names.
func Pseudonyms(names []string) (map[string]string, error) {
	set := map[string]bool{}
	for _, n := range names {
		if isName(reflect.TypeFor[string](), n) {
			set[n] = true
		}
	}
	return pseudonyms(set)
}

// Words are texts that stay.
func Words() []string { return words }

// Check returns an error if a type that is recorded has a field that can't be.
func Check() error {
	_, err := fingerprint()
	return err
}
