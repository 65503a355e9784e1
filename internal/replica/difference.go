package replica

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

const (
	// leastPiece is the length of the shortest part of a content that is looked for in
	// another one, in bytes.
	leastPiece = 32
	// maxPieces bounds the pieces of a difference.
	maxPieces = 1 << 20
)

// known finds the pieces of a content. It keeps their hashes and no copies: contents have
// megabytes, and each plan has one.
type known struct {
	content []byte
	seed    maphash.Seed
	at      map[uint64]int // offset of the first piece with a hash
}

func knownOf(content []byte) *known {
	k := &known{content: content, seed: maphash.MakeSeed(), at: map[uint64]int{}}
	for at, piece := range cut(content) {
		if len(piece) < leastPiece {
			continue
		}
		h := maphash.Bytes(k.seed, piece)
		if _, twice := k.at[h]; !twice {
			k.at[h] = at
		}
	}
	return k
}

// find returns where a piece is in the content.
func (k *known) find(piece []byte) (at int, ok bool) {
	if len(piece) < leastPiece {
		return 0, false
	}
	at, ok = k.at[maphash.Bytes(k.seed, piece)]
	return at, ok && k.has(at, piece)
}

// has reports whether a piece is in the content at an offset.
func (k *known) has(at int, piece []byte) bool {
	return at+len(piece) <= len(k.content) && bytes.Equal(k.content[at:at+len(piece)], piece)
}

// difference returns a message that makes next from base: nil if that takes about as much as next
// itself. Contents are protobuf messages; the services in them, and their fields, that stay the
// same are not sent again.
func difference(base, next []byte) *peerv1.PlanDifference {
	known := knownOf(base)
	d := &peerv1.PlanDifference{Size: uint64(len(next))}
	own := 0
	for at, piece := range cut(next) {
		last := lastPiece(d)
		if end := int(last.GetOffset() + last.GetLength()); last.GetLength() > 0 && known.has(end, piece) { //nolint:gosec // within base
			last.Length += uint64(len(piece)) // as in base
			continue
		}
		if from, ok := known.find(piece); ok {
			d.Pieces = append(d.Pieces, &peerv1.Piece{Offset: uint64(from), Length: uint64(len(piece))}) //nolint:gosec // within base
			continue
		}
		own += len(piece)
		if last == nil || last.GetLength() > 0 {
			last = &peerv1.Piece{Content: next[at:at]}
			d.Pieces = append(d.Pieces, last)
		}
		last.Content = next[at-len(last.GetContent()) : at+len(piece)]
	}
	if len(d.GetPieces()) > maxPieces || own > len(next)*4/5 {
		return nil
	}
	return d
}

func lastPiece(d *peerv1.PlanDifference) *peerv1.Piece {
	if n := len(d.GetPieces()); n > 0 {
		return d.GetPieces()[n-1]
	}
	return nil
}

// cut yields the parts of a content in order, with their offsets: its fields, and the
// fields of messages within. Together they are the content, whatever it is.
func cut(content []byte) func(yield func(int, []byte) bool) {
	return func(yield func(int, []byte) bool) { cutInto(content, 0, 2, yield) }
}

func cutInto(content []byte, at, levels int, yield func(int, []byte) bool) bool {
	for len(content) > 0 {
		whole, value := nextField(content)
		if whole < 0 { // no protobuf: the rest is one part
			return yield(at, content)
		}
		if levels > 1 && isMessage(value) {
			head := whole - len(value)
			if !yield(at, content[:head]) || !cutInto(value, at+head, levels-1, yield) {
				return false
			}
		} else if !yield(at, content[:whole]) {
			return false
		}
		content, at = content[whole:], at+whole
	}
	return true
}

// nextField returns the length of the field at the beginning, and its value if that is a
// text, bytes or a message; -1 where no field begins.
func nextField(content []byte) (whole int, value []byte) {
	field, kind, tag := protowire.ConsumeTag(content)
	if tag < 0 {
		return -1, nil
	}
	length := protowire.ConsumeFieldValue(field, kind, content[tag:])
	if length < 0 {
		return -1, nil
	}
	if kind == protowire.BytesType {
		value, _ = protowire.ConsumeBytes(content[tag:])
	}
	return tag + length, value
}

// isMessage reports whether a value is long, and has a few fields: a text may be read as
// many short ones.
func isMessage(value []byte) bool {
	const most = 16 // fields
	if len(value) <= 2*leastPiece {
		return false
	}
	for range most {
		whole, _ := nextField(value)
		if whole < 0 || whole == len(value) {
			return whole > 0
		}
		value = value[whole:]
	}
	return false
}

var errDifference = errors.New("a difference reaches beyond the plan that it begins from")

// apply makes a content from an earlier one.
func apply(base []byte, d *peerv1.PlanDifference) ([]byte, error) {
	if d.GetSize() > MaxContent {
		return nil, fmt.Errorf("a difference makes %d bytes, at most %d are allowed", d.GetSize(), MaxContent)
	}
	sum := uint64(0)
	for _, p := range d.GetPieces() {
		n := uint64(len(p.GetContent()))
		if p.GetLength() > 0 {
			n = p.GetLength()
			if p.GetOffset() > uint64(len(base)) || n > uint64(len(base))-p.GetOffset() {
				return nil, errDifference
			}
		}
		if sum += n; sum > d.GetSize() {
			break
		}
	}
	if sum != d.GetSize() {
		return nil, fmt.Errorf("a difference does not make the %d bytes that it declares", d.GetSize())
	}
	out := make([]byte, 0, d.GetSize())
	for _, p := range d.GetPieces() {
		if p.GetLength() > 0 {
			out = append(out, base[p.GetOffset():p.GetOffset()+p.GetLength()]...)
		} else {
			out = append(out, p.GetContent()...)
		}
	}
	return out, nil
}

// packers are idle writers of pack: a new one takes more than a megabyte.
var packers = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(io.Discard, flate.BestSpeed) // the level is right
	return w
}}

// pack compresses a plan, fast rather than well.
func pack(data []byte) []byte {
	var out bytes.Buffer
	w := packers.Get().(*flate.Writer) //nolint:forcetypeassert // it holds nothing else
	defer func() {
		w.Reset(io.Discard) // so that it does not keep out
		packers.Put(w)
	}()
	w.Reset(&out)
	_, err := w.Write(data)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return data // a buffer in memory takes everything
	}
	return out.Bytes()
}

// unpack undoes pack, for at most the size of a plan.
func unpack(data []byte) ([]byte, error) {
	out, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(data)), MaxContent+1))
	if err != nil {
		return nil, fmt.Errorf("it can't be unpacked: %w", err)
	}
	if len(out) > MaxContent {
		return nil, fmt.Errorf("it has more than %d bytes, unpacked", MaxContent)
	}
	return out, nil
}
