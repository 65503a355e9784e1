package replica

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

const (
	// leastPiece is the length of the shortest piece of a content that is looked for in
	// another one, in bytes.
	leastPiece = 32
	// maxPieces bounds the pieces of a difference.
	maxPieces = 1 << 20
)

// positions finds bytes of a content by their offsets.
type positions struct {
	parts  []group.Part
	starts []int // of the parts
}

func positionsOf(c *group.Content) positions {
	p := positions{parts: c.Parts(), starts: make([]int, len(c.Parts()))}
	at := 0
	for i := range p.parts {
		p.starts[i] = at
		at += len(p.parts[i].Bytes())
	}
	return p
}

// at returns the part with the byte at an offset, which the content has, and the offset within
// the part.
func (p *positions) at(offset int) (part *group.Part, within int) {
	i, found := slices.BinarySearch(p.starts, offset)
	if !found {
		i--
	}
	return &p.parts[i], offset - p.starts[i]
}

// known finds the parts of a content, and the pieces of those parts that another content lacks. It
// keeps the hashes of pieces and no copies.
type known struct {
	positions

	size   int
	byPart map[[sha256.Size]byte]int // offset of the first part with a digest
	seed   maphash.Seed
	pieces map[uint64]int // offset of the first piece with a hash
}

func knownOf(base, next *group.Content) *known {
	k := &known{
		positions: positionsOf(base), size: base.Size(), byPart: make(map[[sha256.Size]byte]int, len(base.Parts())),
		seed: maphash.MakeSeed(), pieces: map[uint64]int{},
	}
	stays := make(map[[sha256.Size]byte]bool, len(next.Parts()))
	for i := range next.Parts() {
		stays[next.Parts()[i].Digest()] = true
	}
	for i := range k.parts {
		digest := k.parts[i].Digest()
		if _, twice := k.byPart[digest]; !twice {
			k.byPart[digest] = k.starts[i]
		}
		if !stays[digest] {
			k.learn(k.parts[i].Bytes(), k.starts[i])
		}
	}
	return k
}

// learn notes the pieces of a part.
func (k *known) learn(part []byte, start int) {
	for at, piece := range pieces(part) {
		if len(piece) < leastPiece {
			continue
		}
		h := maphash.Bytes(k.seed, piece)
		if _, twice := k.pieces[h]; !twice {
			k.pieces[h] = start + at
		}
	}
}

// find returns where a piece is in the content.
func (k *known) find(piece []byte) (at int, ok bool) {
	if len(piece) < leastPiece {
		return 0, false
	}
	at, ok = k.pieces[maphash.Bytes(k.seed, piece)]
	return at, ok && k.has(at, piece)
}

// has reports whether a piece is in the content at an offset.
func (k *known) has(at int, piece []byte) bool {
	if at >= k.size {
		return false
	}
	part, within := k.at(at)
	return bytes.HasPrefix(part.Bytes()[within:], piece)
}

// writer writes a difference.
type writer struct {
	*known

	out *peerv1.PlanDifference
	own int // bytes that the earlier content lacks
}

// difference returns a message that makes next from base: nil if that takes about as much as next
// itself. The parts of a content that stay the same are not sent again, and not those of their
// fields.
func difference(base, next *group.Content) *peerv1.PlanDifference {
	w := &writer{known: knownOf(base, next), out: &peerv1.PlanDifference{Size: uint64(next.Size())}} //nolint:gosec // a size
	for i := range next.Parts() {
		w.add(&next.Parts()[i])
	}
	if len(w.out.GetPieces()) > maxPieces || w.own > next.Size()*4/5 {
		return nil
	}
	return w.out
}

// add adds the next part.
func (w *writer) add(part *group.Part) {
	data := part.Bytes()
	if from, ok := w.byPart[part.Digest()]; ok && (len(data) >= leastPiece || from == w.end()) {
		w.keep(from, len(data))
		return
	}
	began := len(w.out.GetPieces())
	for at, piece := range pieces(data) {
		if end := w.end(); end >= 0 && w.has(end, piece) {
			w.keep(end, len(piece)) // as in the earlier content
			continue
		}
		if from, ok := w.find(piece); ok {
			w.keep(from, len(piece))
			continue
		}
		w.own += len(piece)
		last := w.last()
		if len(w.out.GetPieces()) == began || last.GetLength() > 0 {
			last = &peerv1.Piece{Content: data[at:at]}
			w.out.Pieces = append(w.out.Pieces, last)
		}
		last.Content = data[at-len(last.GetContent()) : at+len(piece)]
	}
}

// keep adds a range of the earlier content.
func (w *writer) keep(at, length int) {
	if at == w.end() {
		w.last().Length += uint64(length) //nolint:gosec // a length
		return
	}
	w.out.Pieces = append(w.out.Pieces, &peerv1.Piece{Offset: uint64(at), Length: uint64(length)}) //nolint:gosec // within the earlier content
}

// last is the last piece of the difference; nil where there is none.
func (w *writer) last() *peerv1.Piece {
	if n := len(w.out.GetPieces()); n > 0 {
		return w.out.GetPieces()[n-1]
	}
	return nil
}

// end is where the range of the last piece ends; -1 where the last piece is none.
func (w *writer) end() int {
	if last := w.last(); last.GetLength() > 0 {
		return int(last.GetOffset() + last.GetLength()) //nolint:gosec // within the earlier content
	}
	return -1
}

var errDifference = errors.New("a difference reaches beyond the plan that it begins from")

// checkSize returns an error unless a difference from a content with some bytes makes as many as it
// declares.
func checkSize(base int, d *peerv1.PlanDifference) error {
	if d.GetSize() > MaxContent {
		return fmt.Errorf("a difference makes %d bytes, at most %d are allowed", d.GetSize(), MaxContent)
	}
	sum := uint64(0)
	for _, p := range d.GetPieces() {
		n := uint64(len(p.GetContent()))
		if p.GetLength() > 0 {
			n = p.GetLength()
			if p.GetOffset() > uint64(base) || n > uint64(base)-p.GetOffset() { //nolint:gosec // a size
				return errDifference
			}
		}
		if sum += n; sum > d.GetSize() {
			break
		}
	}
	if sum != d.GetSize() {
		return fmt.Errorf("a difference does not make the %d bytes that it declares", d.GetSize())
	}
	return nil
}

// apply makes a content from an earlier one, whose parts it keeps where they stay.
func apply(base *group.Content, d *peerv1.PlanDifference) (group.Content, error) {
	if err := checkSize(base.Size(), d); err != nil {
		return group.Content{}, err
	}
	j := joiner{positions: positionsOf(base)}
	for _, p := range d.GetPieces() {
		if p.GetLength() > 0 {
			j.keep(int(p.GetOffset()), int(p.GetLength())) //nolint:gosec // within the earlier content
		} else {
			j.add(p.GetContent())
		}
	}
	return j.content(), nil
}

// joiner joins ranges of an earlier content and other bytes to a content, with the parts that
// [Cut] would cut it into.
type joiner struct {
	positions // of the earlier content

	joined []group.Part
	rest   []byte // after the last part
}

// keep adds a range of the earlier content.
func (j *joiner) keep(from, length int) {
	for length > 0 {
		part, within := j.at(from)
		data := part.Bytes()
		n := min(len(data)-within, length)
		if len(j.rest) == 0 && n == len(data) && isField(data) {
			j.joined = append(j.joined, *part)
		} else {
			j.add(data[within : within+n])
		}
		from, length = from+n, length-n
	}
}

// add adds bytes. Parts get copies: one that stays for long must not keep the others in memory.
func (j *joiner) add(data []byte) {
	j.rest = append(j.rest, data...)
	at := 0
	for at < len(j.rest) {
		whole, _ := nextField(j.rest[at:])
		if whole < 0 {
			break
		}
		j.joined = append(j.joined, group.NewPart(bytes.Clone(j.rest[at:at+whole])))
		at += whole
	}
	if at > 0 {
		j.rest = append(j.rest[:0], j.rest[at:]...)
	}
}

func (j *joiner) content() group.Content {
	if len(j.rest) > 0 {
		j.joined = append(j.joined, group.NewPart(j.rest))
	}
	return group.NewContent(j.joined)
}
