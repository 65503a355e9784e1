package lrs

import (
	"sync"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs/reader"
)

// buffer is the memory of a report, and of a window that holds nothing else.
type buffer struct {
	report reader.ReportBuffer
	window [1]load.Report
}

// bufferPool lets reports use memory again: what was collected is done with when
// the next collection comes.
type bufferPool struct {
	mu    sync.Mutex
	spare []*buffer // ready for use
	lent  []*buffer // of the reports collected last
}

// take returns a buffer for a report.
func (r *bufferPool) take() *buffer {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.spare)
	if n == 0 {
		return &buffer{}
	}
	out := r.spare[n-1]
	r.spare[n-1] = nil
	r.spare = r.spare[:n-1]
	return out
}

// turn makes what was lent ready for use, and gives an empty list for what will
// be lent next. What was not taken since the last time is too much, and let go.
func (r *bufferPool) turn() []*buffer {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.spare
	r.spare, r.lent = r.lent, nil
	clear(next)
	return next[:0]
}

// lend notes the buffers whose reports are collected.
func (r *bufferPool) lend(buffers []*buffer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lent = buffers
}
