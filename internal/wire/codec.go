package wire

import (
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
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
		if len(data) == 1 {
			return r.ReadMessage(data[0].ReadOnlyData())
		}
		whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer whole.Free()
		return r.ReadMessage(whole.ReadOnlyData())
	}
	m, ok := v.(protoreflect.ProtoMessage)
	if !ok || data.Len() < scanFrom {
		return c.fallback.Unmarshal(data, v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	if err := scan(whole.ReadOnlyData(), m.ProtoReflect().Descriptor(), maxMessages); err != nil {
		return err
	}
	return c.fallback.Unmarshal(mem.BufferSlice{whole}, v)
}

// Decode decodes a message for a Reader, as the codec does for others: large
// ones only if they are not built to become much larger.
func Decode(encoded []byte, m proto.Message) error { return decodeUpTo(encoded, m, maxMessages) }

// decodeUpTo is Decode with another bound on the messages within a message.
func decodeUpTo(encoded []byte, m proto.Message, most int) error {
	if len(encoded) >= scanFrom {
		if err := scan(encoded, m.ProtoReflect().Descriptor(), most); err != nil {
			return err
		}
	}
	return proto.Unmarshal(encoded, m)
}

// Name is that of the protobuf codec: the bytes on the wire are the same.
func (c frameCodec) Name() string { return c.fallback.Name() }
