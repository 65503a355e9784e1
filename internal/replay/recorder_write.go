package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/replay/deep"
)

// Run writes the recording until it ends, a write fails, or ctx ends, which is no error: the
// recording is finished then. A slow writer makes it fail with ErrSlow. written, unless nil, is
// called after each plan.
func (r *Recorder) Run(ctx context.Context, w io.Writer, written func(Counts)) (err error) {
	defer func() {
		if err != nil {
			r.fail(err)
		}
	}()
	if r.out, err = newChunker(w); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { r.End(EndFinished) })
	defer stop()
	for {
		closed, err := r.drain(written)
		if closed || err != nil {
			return err
		}
		<-r.wake
	}
}

// WriteNow writes what waits, in place of Run: for a loop that may wait for it.
// w is the same at each call.
func (r *Recorder) WriteNow(w io.Writer) (err error) {
	defer func() {
		if err != nil {
			r.fail(err)
		}
	}()
	if r.out == nil {
		if r.out, err = newChunker(w); err != nil {
			return err
		}
	}
	_, err = r.drain(nil)
	return err
}

// drain writes what waits, and reports whether that is the end.
func (r *Recorder) drain(written func(Counts)) (closed bool, err error) {
	for {
		items, closed, err := r.next()
		if err != nil {
			return false, r.giveUp(err)
		}
		for i := range items {
			if err := r.write(&items[i], written); err != nil {
				return false, err
			}
		}
		switch {
		case closed:
			return true, r.out.flush()
		case len(items) == 0:
			return false, nil
		}
	}
}

// giveUp says in the recording why it ends.
func (r *Recorder) giveUp(reason error) error {
	b, err := json.Marshal(End{Reason: reason.Error()})
	if err == nil {
		err = r.out.record(kindEnd, b)
	}
	if err == nil {
		err = r.out.flush()
	}
	return errors.Join(reason, err)
}

// next takes what waits.
func (r *Recorder) next() (items []item, closed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) > 0 { // one at a time: what is written no longer waits
		items = r.queue[:1:1]
		r.queue = r.queue[1:]
		r.pending -= len(items[0].bytes)
		if items[0].kind == kindPlan {
			r.plans--
		}
	}
	return items, r.closed && len(r.queue) == 0, r.failure
}

func (r *Recorder) write(it *item, written func(Counts)) error {
	switch it.kind {
	case kindTopology:
		e := deep.NewEncoder(true)
		if err := e.Known(r.last); err != nil {
			return err
		}
		if err := e.Encode(it.topology); err != nil {
			return err
		}
		r.last = it.topology
		return r.out.record(it.kind, e.Bytes())
	case kindPlan:
		d, err := decided(&r.sums, it)
		if err != nil {
			return err
		}
		e := deep.NewEncoder(false)
		if err := e.Encode(d); err != nil {
			return err
		}
		if err := r.out.record(it.kind, e.Bytes()); err != nil {
			return err
		}
		if err := r.out.flush(); err != nil {
			return err
		}
		r.counts = Counts{Plans: r.counts.Plans + 1, Bytes: r.out.written}
		if written != nil {
			written(r.counts)
		}
		return nil
	default:
		return r.out.record(it.kind, it.bytes)
	}
}

func decided(sums *summer, it *item) (*Decided, error) {
	if it.after == nil {
		return &Decided{Failed: it.failed}, nil
	}
	d := &Decided{Version: it.after.Version}
	var err error
	if d.Sum, d.Services, err = sums.sum(it.after); err != nil {
		return nil, fmt.Errorf("plan %d: %w", it.after.Version, err)
	}
	if change, ok := plan.Changed(it.before, it.after, plan.Origin{}); ok {
		d.Change = &change
	}
	return d, nil
}
