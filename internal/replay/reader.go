package replay

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/replay/deep"
)

// ReaderOptions bound what a Reader may take; the zero value is for files of
// any fleet.
type ReaderOptions struct {
	MaxRecord int   // bytes of a record; 0 = DefaultMaxRecord
	MaxMemory int64 // bytes that a record may take in memory; 0 = DefaultMaxMemory

	rename func(t reflect.Type, text string) string // puts other texts into the place of those that are read
}

// DefaultMaxMemory bounds what one record may take in memory, in bytes.
const DefaultMaxMemory = 8 << 30

// Reader reads a trace. Whatever the bytes are, it returns an error at the worst.
type Reader struct {
	opts  ReaderOptions
	in    *unchunker
	types string
	about About
	last  *isobar.Topology
	ended bool // the segment has its end
}

// NewReader makes a reader.
func NewReader(r io.Reader, opts ReaderOptions) (*Reader, error) {
	if opts.MaxRecord <= 0 {
		opts.MaxRecord = DefaultMaxRecord
	}
	if opts.MaxMemory <= 0 {
		opts.MaxMemory = DefaultMaxMemory
	}
	types, err := fingerprint()
	if err != nil {
		return nil, err
	}
	return &Reader{opts: opts, in: newUnchunker(r), types: types, ended: true}, nil
}

// About tells who wrote the present segment.
func (r *Reader) About() About { return r.about }

// Offset returns how many bytes were read.
func (r *Reader) Offset() int64 { return r.in.offset }

// entry is one record, decoded: *Start, *isobar.Topology, *operators, *observed,
// *released, *turned, *Decided or *End.
type entry any

// next returns the next record of all segments; io.EOF after the last. An error
// that wraps ErrCut says that everything before was whole.
func (r *Reader) next() (entry, error) {
	for {
		kind, payload, err := r.record()
		if err != nil {
			return nil, err
		}
		if kind == kindAbout {
			if err := r.begin(payload); err != nil {
				return nil, err
			}
			continue
		}
		if r.about.Types == "" {
			return nil, fmt.Errorf("%w: a segment does not begin with the version of Isobar that wrote it", ErrDamaged)
		}
		return r.decode(kind, payload)
	}
}

// record returns the next record, of the next segment where one is at its end.
func (r *Reader) record() (byte, []byte, error) {
	for {
		if r.in.begun {
			kind, payload, err := r.in.record(r.opts.MaxRecord)
			switch {
			case err == nil:
				return kind, payload, nil
			case errors.Is(err, io.EOF) && !r.ended:
				err = fmt.Errorf("%w after %d bytes: the recording was not closed", ErrCut, r.in.offset)
			case errors.Is(err, io.EOF):
				err = nil
			}
			// A recording that was cut may be followed by another: of the server
			// that came after the one that was killed.
			if err != nil && (!errors.Is(err, ErrCut) || !r.in.follows()) {
				return 0, nil, err
			}
		}
		if err := r.in.segment(); err != nil {
			return 0, nil, err
		}
		r.about, r.last, r.ended = About{}, nil, false
	}
}

func (r *Reader) begin(payload []byte) error {
	if err := json.Unmarshal(payload, &r.about); err != nil || r.about.Types == "" {
		return fmt.Errorf("%w: it does not name the version of Isobar that wrote it", ErrDamaged)
	}
	if r.about.Types != r.types {
		return fmt.Errorf("%w: isobar %q wrote it, which keeps other state than this isobar: replay it with that one", ErrFormat, r.about.Isobar)
	}
	return nil
}

func (r *Reader) decode(kind byte, payload []byte) (entry, error) {
	into := func(sharing bool, v entry) (entry, error) {
		d := deep.NewDecoder(payload, sharing, r.opts.MaxMemory)
		d.Rename(r.opts.rename)
		if kind == kindTopology {
			if err := d.Known(r.last); err != nil {
				return nil, err
			}
		}
		if err := d.Decode(v); err != nil {
			return nil, fmt.Errorf("%w: before byte %d: %w", ErrDamaged, r.in.offset, err)
		}
		return v, nil
	}
	if kind != kindStart && r.last == nil {
		return nil, fmt.Errorf("%w: a segment does not begin with its state", ErrDamaged)
	}
	switch kind {
	case kindStart:
		s := &Start{}
		if _, err := into(true, s); err != nil {
			return nil, err
		}
		if s.Decider == nil || s.Monitor == nil || s.Current == nil || s.Topology == nil {
			return nil, fmt.Errorf("%w: the state at the start is not whole", ErrDamaged)
		}
		r.last = s.Topology
		return s, nil
	case kindTopology:
		t := &isobar.Topology{}
		if _, err := into(true, t); err != nil {
			return nil, err
		}
		r.last = t
		return t, nil
	case kindOperators:
		return into(false, &operators{})
	case kindObserve:
		return into(false, &observed{})
	case kindRelease:
		return into(false, &released{})
	case kindTurn:
		return into(false, &turned{})
	case kindPlan:
		return into(false, &Decided{})
	case kindEnd:
		r.ended = true
		end := &End{}
		if err := json.Unmarshal(payload, end); err != nil {
			return nil, fmt.Errorf("%w: its end can't be read", ErrDamaged)
		}
		return end, nil
	default:
		return nil, fmt.Errorf("%w: a record of kind %d", ErrFormat, kind)
	}
}

// Copy copies a trace, whole chunks of it only, so that what was copied can be
// followed by another. A trace that is cut gives an error that wraps ErrCut.
func Copy(to io.Writer, from io.Reader) error {
	u := newUnchunker(from)
	for {
		switch err := u.segment(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if _, err := to.Write(binary.BigEndian.AppendUint16([]byte(mark), version)); err != nil {
			return err
		}
		for {
			u.raw = nil
			err := u.more()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if _, err := to.Write(append(u.head[:], u.packed...)); err != nil {
				return err
			}
		}
	}
}

// Finish ends a copied segment as its recorder would have: for one that the user
// ended. What was copied must end with a whole record, as [Skim] tells.
func Finish(to io.Writer) error {
	payload, err := json.Marshal(End{Reason: EndFinished})
	if err != nil {
		return err
	}
	c, err := newChunker(io.Discard)
	if err != nil {
		return err
	}
	c.w = to
	return errors.Join(c.record(kindEnd, payload), c.flush())
}

// Contents is what a trace holds.
type Contents struct {
	Recordings int
	Plans      int
	Began      time.Time // the first recording
	Ended      string    // why the last one did; empty where it is cut
}

// Skim tells what a trace holds without playing it; also beside an error.
func Skim(r io.Reader) (Contents, error) {
	var out Contents
	u := newUnchunker(r)
	for {
		switch err := u.segment(); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, err
		}
		out.Recordings++
		out.Ended = ""
		for {
			kind, payload, err := u.record(DefaultMaxRecord)
			if errors.Is(err, io.EOF) || errors.Is(err, ErrCut) && u.follows() {
				break
			}
			if err != nil {
				return out, err
			}
			out.count(kind, payload)
		}
	}
}

func (c *Contents) count(kind byte, payload []byte) {
	switch kind {
	case kindAbout:
		var about About
		if json.Unmarshal(payload, &about) == nil && c.Began.IsZero() {
			c.Began = about.Started
		}
	case kindPlan:
		c.Plans++
	case kindEnd:
		var end End
		if json.Unmarshal(payload, &end) == nil {
			c.Ended = end.Reason
		}
	default:
	}
}
