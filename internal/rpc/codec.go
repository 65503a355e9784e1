// Package rpc holds what all streaming services share: the codec, the node and the
// peer of a stream, transport API versions, errors that name a field, bounds on
// inbound messages, and recovery from panics.
package rpc

import (
	"compress/gzip"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Frame is a message that is encoded already. Sending it costs no marshalling:
// its pieces are shared by all streams that send them.
type Frame struct {
	Pieces mem.BufferSlice
}

// RawMessage receives a message without decoding it. The data is owned by the
// receiver.
type RawMessage struct {
	Data []byte
}

// Reader is a message that reads itself.
type Reader interface {
	// ReadMessage takes the encoded message. The bytes are lent for the call.
	ReadMessage(encoded []byte) error
}

// Skipper is a Reader that has no use for the field with which a message may
// begin. Envoy 1.40 sends its node, of 61 kB, with every load report.
type Skipper interface {
	Reader
	// Skips returns the number of the field, of a length-delimited type, or 0 for
	// none. ReadMessage then gets what comes after that field; also all of the
	// message, where it does not begin with it.
	Skips() protowire.Number
}

// Waiter is a Reader that may have to wait for its turn. A message that comes in several
// pieces would be copied before that, and thousands of streams may wait.
type Waiter interface {
	Reader
	// Wait waits before such a message is joined; ReadMessage follows unless it fails.
	Wait() error
}

// Sizer is a Reader that learns how many bytes a message takes before it waits for anything.
// One that was compressed is held decompressed meanwhile.
type Sizer interface {
	Reader
	Size(bytes int)
}

// ServerCodec is the codec of servers that send frames: it passes *Frame and
// *RawMessage through, lets a Reader read, and leaves everything else to the
// protobuf codec. It has to be installed for the whole server by
// grpc.ForceServerCodecV2; services that know nothing of it are not touched.
func ServerCodec() encoding.CodecV2 {
	return frameCodec{fallback: encoding.GetCodecV2(protocodec.Name)}
}

type frameCodec struct {
	fallback encoding.CodecV2
}

// Marshal hands out the pieces of a frame as they are. Their buffers are plain
// slices that are never pooled, so the references that gRPC frees cost nothing.
func (c frameCodec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*Frame); ok {
		return f.Pieces, nil
	}
	return c.fallback.Marshal(v)
}

// Unmarshal copies into a RawMessage, since gRPC frees the data afterwards.
// Large messages are decoded only if they are not built to become much larger.
func (c frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*RawMessage); ok {
		r.Data = data.Materialize()
		return nil
	}
	if r, ok := v.(Reader); ok {
		if s, ok := r.(Sizer); ok {
			s.Size(data.Len())
		}
		return read(data, r)
	}
	m, ok := v.(protoreflect.ProtoMessage)
	if !ok || data.Len() < scanFrom {
		return c.fallback.Unmarshal(data, v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	if err := scan(whole.ReadOnlyData(), m.ProtoReflect().Descriptor(), MaxMessages); err != nil {
		return err
	}
	return c.fallback.Unmarshal(mem.BufferSlice{whole}, v)
}

// read lends a message to a reader in one piece. Only what comes in several is
// copied, and nothing of what the reader skips.
func read(data mem.BufferSlice, r Reader) error {
	skip := 0
	if s, ok := r.(Skipper); ok {
		skip = leading(data, s.Skips())
	}
	for len(data) > 0 && skip >= data[0].Len() {
		skip -= data[0].Len()
		data = data[1:]
	}
	switch len(data) {
	case 0:
		return r.ReadMessage(nil)
	case 1:
		return r.ReadMessage(data[0].ReadOnlyData()[skip:])
	}
	if w, ok := r.(Waiter); ok {
		if err := w.Wait(); err != nil {
			return err
		}
	}
	whole, _ := joined.Get().(*[]byte)
	if whole == nil {
		whole = new([]byte)
	}
	if size := data.Len() - skip; cap(*whole) < size {
		*whole = make([]byte, 0, size) // growing step by step would leave three times as much behind
	}
	*whole = append((*whole)[:0], data[0].ReadOnlyData()[skip:]...)
	for _, b := range data[1:] {
		*whole = append(*whole, b.ReadOnlyData()...)
	}
	err := r.ReadMessage(*whole)
	if cap(*whole) <= maxJoined {
		joined.Put(whole)
	}
	return err
}

// joined are buffers (*[]byte) for messages that come in pieces. Those of gRPC
// are cleared at each use, which costs more than to read what most reports hold.
var joined sync.Pool

const maxJoined = 1 << 20 // bytes; larger messages are rare

// leading is how many bytes the field takes with which a message begins, if it
// has the number; 0 if not, or if the bytes are no message.
func leading(data mem.BufferSlice, number protowire.Number) int {
	if number == 0 || len(data) == 0 {
		return 0
	}
	c := Cursor{Rest: data[0].ReadOnlyData()}
	first := len(c.Rest)
	if !c.Next() || c.Key != keyOf(number, protowire.BytesType) {
		return 0
	}
	size := c.Varint()
	head := first - len(c.Rest)
	if c.Bad || size > uint64(data.Len()-head) { //nolint:gosec // what was read is within the data
		return 0
	}
	return head + int(size) //nolint:gosec // bounded by the data
}

// Decode decodes a message for a Reader, as the codec does for others: large
// ones only if they are not built to become much larger.
func Decode(encoded []byte, m proto.Message) error { return DecodeUpTo(encoded, m, MaxMessages) }

// DecodeUpTo is Decode with another bound on the messages within a message.
func DecodeUpTo(encoded []byte, m proto.Message, most int) error {
	if len(encoded) >= scanFrom {
		if err := scan(encoded, m.ProtoReflect().Descriptor(), most); err != nil {
			return err
		}
	}
	return proto.Unmarshal(encoded, m)
}

// Name is that of the protobuf codec: the bytes on the wire are the same.
func (c frameCodec) Name() string { return c.fallback.Name() }

// Gzip is the name of the compression that clients may use for requests.
const Gzip = "gzip"

// decompressing bounds how many messages are decompressed at the same time. A
// few kilobytes can become the largest message that gRPC accepts, and a
// connection may carry a thousand streams.
const decompressing = 4

// init registers the compressor as the gzip of gRPC itself does, which has no
// such bound.
func init() { //nolint:gochecknoinits // gRPC has no other place for compressors
	encoding.RegisterCompressor(decompressor)
}

// decompressor is the only one, so that its bound holds for messages and polls together.
var decompressor = &gzipCompressor{slots: make(chan struct{}, decompressing)} //nolint:gochecknoglobals // a bound of the process

// gzipCompressor reads messages that clients compressed. gRPC bounds their size
// and closes each reader.
type gzipCompressor struct {
	slots   chan struct{}
	readers sync.Pool
}

// Name implements encoding.Compressor.
func (*gzipCompressor) Name() string { return Gzip }

// Compress implements encoding.Compressor. Servers do not use it: what they
// send is encoded once for all streams.
func (*gzipCompressor) Compress(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }

// Decompress implements encoding.Compressor. It waits while too many messages are
// being decompressed; each of them needs processor time only, so none waits long.
func (c *gzipCompressor) Decompress(r io.Reader) (io.Reader, error) {
	c.slots <- struct{}{}
	z, reused := c.readers.Get().(*gzip.Reader)
	var err error
	if reused {
		err = z.Reset(r)
	} else {
		z, err = gzip.NewReader(r)
	}
	if err != nil {
		<-c.slots
		return nil, err
	}
	return &gzipReader{Reader: z, from: c}, nil
}

// gzipReader gives its slot back when it is closed.
type gzipReader struct {
	*gzip.Reader

	from *gzipCompressor
}

// Close implements io.Closer.
func (r *gzipReader) Close() error {
	if r.from == nil {
		return errors.New("closed twice")
	}
	err := r.Reader.Close()
	r.from.readers.Put(r.Reader)
	<-r.from.slots
	r.from = nil
	return err
}
