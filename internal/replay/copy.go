package replay

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"time"
)

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
