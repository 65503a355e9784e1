package rpc_test

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// kept is a reader that keeps what it is lent.
type kept struct {
	skips protowire.Number
	read  []byte
}

func (k *kept) Skips() protowire.Number { return k.skips }

func (k *kept) ReadMessage(encoded []byte) error {
	k.read = bytes.Clone(encoded)
	return nil
}

// sized is a reader that keeps how much it was told to come.
type sized struct {
	kept

	size int
}

func (s *sized) Size(bytes int) { s.size = bytes }

func (s *sized) Wait() error {
	if s.size == 0 {
		return errors.New("it waits before it knows its size")
	}
	return nil
}

// TestSizeBeforeWaiting asserts that a reader learns the size of its message before it waits.
func TestSizeBeforeWaiting(t *testing.T) {
	data := mem.BufferSlice{mem.SliceBuffer("abc"), mem.SliceBuffer("de")}
	var s sized
	if err := rpc.ServerCodec().Unmarshal(data, &s); err != nil || s.size != 5 || string(s.read) != "abcde" {
		t.Errorf("told of %d bytes, read %q: %v", s.size, s.read, err)
	}
}

// TestSkippedField: wherever a message is cut into pieces, a reader gets all of
// it but the field that it skips, and all of what does not begin with that field
// or is cut off.
func TestSkippedField(t *testing.T) {
	node := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), bytes.Repeat([]byte("n"), 200))
	rest := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte("cluster"))
	for name, test := range map[string]struct {
		message, want []byte
		skips         protowire.Number
	}{
		"skipped":        {append(bytes.Clone(node), rest...), rest, 1},
		"nothing else":   {node, nil, 1},
		"not asked for":  {append(bytes.Clone(node), rest...), append(bytes.Clone(node), rest...), 0},
		"not first":      {append(bytes.Clone(rest), node...), append(bytes.Clone(rest), node...), 1},
		"twice":          {append(bytes.Clone(node), node...), node, 1},
		"cut off":        {node[:100], node[:100], 1},
		"length cut off": {node[:1], node[:1], 1},
		"other type":     {[]byte{1 << 3, 5}, []byte{1 << 3, 5}, 1},
		"empty":          {nil, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			for first := range len(test.message) + 1 {
				for second := first; second <= len(test.message); second += 1 + len(test.message)/7 {
					data := mem.BufferSlice{mem.SliceBuffer(test.message[:first]), mem.SliceBuffer(test.message[first:second]), mem.SliceBuffer(test.message[second:])}
					if first == 0 { // gRPC has no empty pieces
						data = data[1:]
					}
					k := &kept{skips: test.skips}
					if err := rpc.ServerCodec().Unmarshal(data, k); err != nil {
						t.Fatal(err)
					}
					// Where the head of the field is cut apart, all of it may come.
					if !bytes.Equal(k.read, test.want) && (first > 3 || !bytes.Equal(k.read, test.message)) {
						t.Fatalf("cut at %d and %d: read %x, want %x", first, second, k.read, test.want)
					}
				}
			}
		})
	}
}
