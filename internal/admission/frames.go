package admission

import "encoding/binary"

// Of HTTP/2 frames (RFC 9113, sections 4.1 and 6) what is needed to tell where
// messages begin and end.
const (
	frameHead   = 9
	prefaceSize = 24 // of a client, before its first frame

	frameData         = 0
	frameHeaders      = 1
	frameReset        = 3
	frameContinuation = 9

	flagEndStream  = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
)

// frames follows the frames of one direction of a connection.
type frames struct {
	skip int // bytes to pass before the next head
	head [frameHead]byte
	have int // bytes of the head

	kind, flags byte
	stream      uint32
	size        int  // of the payload
	left        int  // bytes of the payload to come
	padding     int  // of them at the end
	padded      bool // the next byte tells padding
	fresh       bool // no piece was told of
	stop        bool // walk ends with this frame
}

// endsStream reports whether the frame is the last one of its sender on a stream.
func (f *frames) endsStream() bool {
	return (f.kind == frameData || f.kind == frameHeaders) && f.flags&flagEndStream != 0
}

// walk tells visit of the payload in b, piece by piece: data of DATA frames, and
// of all others that they are there. The last piece of a frame, which may be
// empty, has end set. Where visit sets stop, walk returns at the end of the frame.
// It returns how many bytes it has passed.
func (f *frames) walk(all []byte, visit func(f *frames, data []byte, end bool)) int {
	b := all
	for {
		n := min(f.skip, len(b))
		f.skip -= n
		b = b[n:]
		if f.stop && f.skip == 0 {
			f.stop = false
			return len(all) - len(b)
		}
		if f.have < frameHead {
			n = copy(f.head[f.have:], b)
			f.have += n
			b = b[n:]
			if f.have < frameHead {
				return len(all)
			}
			f.begin()
		}
		if f.padded {
			if len(b) == 0 {
				return len(all)
			}
			f.padding, f.padded = min(int(b[0]), f.left-1), false
			f.left--
			b = b[1:]
		}
		n = min(max(f.left-f.padding, 0), len(b))
		f.left -= n
		end := f.left == f.padding
		if n > 0 || end {
			visit(f, b[:n], end)
			f.fresh = false
		}
		b = b[n:]
		if !end {
			return len(all)
		}
		f.skip, f.have = f.left, 0
	}
}

// begin reads a head.
func (f *frames) begin() {
	size := int(binary.BigEndian.Uint32(f.head[:4]) >> 8)
	f.kind, f.flags, f.stream = f.head[3], f.head[4], binary.BigEndian.Uint32(f.head[5:])&^(1<<31)
	f.fresh, f.size, f.left, f.padding, f.padded = true, size, size, 0, f.kind == frameData && f.flags&flagPadded != 0 && size > 0
	if f.kind != frameData {
		f.padding = size // nobody reads it
	}
}
