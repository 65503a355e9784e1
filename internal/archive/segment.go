package archive

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/isobar-xds/isobar/internal/plan"
)

// A file is a sequence of records. A record is a header, a head and blocks:
//
//	4 bytes  magic
//	4 bytes  length of the head, big endian, as the next two
//	4 bytes  CRC-32C of the head
//	4 bytes  length of all blocks
//	head     JSON: the mark, and where the blocks are
//	blocks   each deflated JSON: some of the services that changed
const (
	suffix     = ".changes"
	magic      = 0x49534f43
	headerSize = 16

	blockServices = 64
	maxHead       = 8 << 20 // above it a file is damaged
	maxBlock      = 256 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Mark is a change in one line.
type Mark struct {
	Version  uint64    `json:"version"`
	Previous uint64    `json:"previous"` // version of the plan that it followed
	Made     time.Time `json:"made"`
	Trigger  string    `json:"trigger"`
	Who      string    `json:"who,omitempty"`
	Reason   string    `json:"reason,omitempty"` // of an operator
	About    string    `json:"about,omitempty"`  // service that an operator named; empty: all
	Services int       `json:"services"`         // number of changed services
	Moved    float64   `json:"moved"`            // the largest part of its traffic that a source moved
	Most     string    `json:"most,omitempty"`   // the service of that source, or with the largest change of drops
	Why      string    `json:"why,omitempty"`    // of that service
}

// MarkOf returns a change in one line.
func MarkOf(c *plan.Change) Mark {
	m := Mark{
		Version: c.Version, Previous: c.Previous, Made: c.Made, Trigger: c.Trigger, Who: c.Who, Reason: c.Reason, About: c.About, Services: len(c.Services),
	}
	most := -1.0
	for i := range c.Services {
		s := &c.Services[i]
		moved := s.Moved()
		m.Moved = max(m.Moved, moved)
		if size := max(moved, math.Abs(s.After-s.Before)); size > most {
			most, m.Most, m.Why = size, s.Service, s.Reason
		}
	}
	return m
}

// entry is a change in the index.
type entry struct {
	mark   Mark
	at     int64 // of the first block in its file
	blocks []block
}

// block is some of the services of a change, which are sorted.
type block struct {
	First string `json:"first"` // name of the first service
	Last  string `json:"last"`
	Names uint64 `json:"names"` // a bit for each name: one that is not set is not in it
	Size  int    `json:"size"`  // compressed
	CRC   uint32 `json:"crc"`
}

// head is what stands before the blocks.
type head struct {
	Mark

	Blocks []block `json:"blocks,omitempty"`
}

func nameBit(name string) uint64 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, name) // it never fails
	return 1 << (h.Sum32() % 64)
}

func (b *block) mayHold(service string) bool {
	return service >= b.First && service <= b.Last && b.Names&nameBit(service) != 0
}

// encode makes the record of a change, and its entry, in which at counts from the
// beginning of the record.
func encode(c *plan.Change) ([]byte, entry, error) {
	h := head{Mark: MarkOf(c)}
	var blocks bytes.Buffer
	for from := 0; from < len(c.Services); from += blockServices {
		part := c.Services[from:min(from+blockServices, len(c.Services))]
		b := block{First: part[0].Service, Last: part[len(part)-1].Service}
		for i := range part {
			b.Names |= nameBit(part[i].Service)
		}
		before := blocks.Len()
		if err := deflate(&blocks, part); err != nil {
			return nil, entry{}, err
		}
		b.Size, b.CRC = blocks.Len()-before, crc32.Checksum(blocks.Bytes()[before:], castagnoli)
		h.Blocks = append(h.Blocks, b)
	}
	text, err := json.Marshal(h)
	if err != nil {
		return nil, entry{}, err
	}
	if len(text) > maxHead || blocks.Len() > math.MaxInt32 {
		return nil, entry{}, fmt.Errorf("version %d is too large", c.Version)
	}
	out := make([]byte, headerSize, headerSize+len(text)+blocks.Len())
	binary.BigEndian.PutUint32(out[0:], magic)
	binary.BigEndian.PutUint32(out[4:], uint32(len(text))) //nolint:gosec // bounded above
	binary.BigEndian.PutUint32(out[8:], crc32.Checksum(text, castagnoli))
	binary.BigEndian.PutUint32(out[12:], uint32(blocks.Len())) //nolint:gosec // bounded above
	out = append(append(out, text...), blocks.Bytes()...)
	return out, entry{mark: h.Mark, at: int64(headerSize + len(text)), blocks: h.Blocks}, nil
}

// writers are kept, because each takes much memory.
var writers = sync.Pool{New: func() any {
	z, _ := flate.NewWriter(io.Discard, flate.BestSpeed) // the level is one that exists
	return z
}}

func deflate(w io.Writer, services []plan.ServiceChange) error {
	z, _ := writers.Get().(*flate.Writer)
	defer writers.Put(z)
	z.Reset(w)
	if err := json.NewEncoder(z).Encode(services); err != nil {
		return err
	}
	return z.Close()
}

// segment is a file, or the same in memory.
type segment struct {
	name    string
	file    *os.File // nil = in memory
	data    []byte
	size    int64
	broken  bool // what stands after size is not known: nothing is appended
	entries []entry
}

func numberOf(name string) uint64 {
	n, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(name), suffix), 16, 64)
	if err != nil {
		return 0
	}
	return n
}

func createSegment(name string) (*segment, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // a name of our own in the state directory
	if err != nil {
		return nil, err
	}
	return &segment{name: name, file: f}, nil
}

// openSegment reads the heads of a file up to the first that is damaged, and cuts the
// file there.
func openSegment(name string) (*segment, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0) //nolint:gosec // as above
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s := &segment{name: name, file: f}
	for {
		e, next, ok := readHead(f, s.size, info.Size())
		if !ok || len(s.entries) > 0 && e.mark.Version <= s.entries[len(s.entries)-1].mark.Version {
			break
		}
		s.entries, s.size = append(s.entries, e), next
	}
	if s.size < info.Size() {
		s.broken = f.Truncate(s.size) != nil
	}
	return s, nil
}

// readHead reads the head of the record at an offset of a file of so many bytes.
func readHead(f io.ReaderAt, at, size int64) (e entry, next int64, ok bool) {
	var header [headerSize]byte
	if _, err := f.ReadAt(header[:], at); err != nil || binary.BigEndian.Uint32(header[:]) != magic {
		return e, 0, false
	}
	length, blocks := binary.BigEndian.Uint32(header[4:]), binary.BigEndian.Uint32(header[12:])
	next = at + headerSize + int64(length) + int64(blocks)
	if length > maxHead || next > size {
		return e, 0, false
	}
	text := make([]byte, length)
	if _, err := f.ReadAt(text, at+headerSize); err != nil || crc32.Checksum(text, castagnoli) != binary.BigEndian.Uint32(header[8:]) {
		return e, 0, false
	}
	var h head
	if json.Unmarshal(text, &h) != nil {
		return e, 0, false
	}
	sum := int64(0)
	for i := range h.Blocks {
		if h.Blocks[i].Size < 0 {
			return e, 0, false
		}
		sum += int64(h.Blocks[i].Size)
	}
	return entry{mark: h.Mark, at: at + headerSize + int64(length), blocks: h.Blocks}, next, sum == int64(blocks)
}

// write writes a record after the last one.
func (s *segment) write(data []byte) error {
	if s.file == nil {
		return nil // add does
	}
	if _, err := s.file.WriteAt(data, s.size); err != nil {
		s.broken = s.file.Truncate(s.size) != nil
		return err
	}
	return nil
}

// add notes a record that was written. The archive is locked.
func (s *segment) add(e entry, data []byte) {
	if s.file == nil {
		s.data = append(s.data, data...)
	}
	e.at += s.size
	s.size += int64(len(data))
	s.entries = append(s.entries, e)
}

// ref is a change and where it stands.
type ref struct {
	*entry

	number int // counts up from the first change since Open
	file   *os.File
	data   []byte // in memory
}

// services reads the services that a change changed: all for an empty name, else the one
// of that name, if there is any.
func (r *ref) services(name string) ([]plan.ServiceChange, error) {
	out := []plan.ServiceChange{}
	at := r.at
	for i := range r.blocks {
		b := &r.blocks[i]
		if name == "" || b.mayHold(name) {
			found, err := r.read(b, at)
			if err != nil {
				return nil, err
			}
			for k := range found {
				if name == "" || found[k].Service == name {
					out = append(out, found[k])
				}
			}
		}
		at += int64(b.Size)
	}
	return out, nil
}

func (r *ref) read(b *block, at int64) ([]plan.ServiceChange, error) {
	data := make([]byte, b.Size)
	var err error
	if r.file == nil {
		_, err = bytes.NewReader(r.data).ReadAt(data, at)
	} else {
		_, err = r.file.ReadAt(data, at)
	}
	if err != nil {
		return nil, gone(err)
	}
	if crc32.Checksum(data, castagnoli) != b.CRC {
		return nil, fmt.Errorf("archive: version %d is damaged", r.mark.Version)
	}
	var out []plan.ServiceChange
	if err := json.NewDecoder(io.LimitReader(flate.NewReader(bytes.NewReader(data)), maxBlock)).Decode(&out); err != nil {
		return nil, fmt.Errorf("archive: version %d: %w", r.mark.Version, err)
	}
	return out, nil
}

// age is the time from the first change of the file to a moment.
func (s *segment) age(now time.Time) time.Duration {
	if len(s.entries) == 0 {
		return 0
	}
	return now.Sub(s.entries[0].mark.Made)
}

func (s *segment) remove() error {
	if s.file == nil {
		return nil
	}
	return errors.Join(s.file.Close(), os.Remove(s.name))
}
