package lrs

import (
	"sync"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs/reader"
)

// room is the memory of a report, and of a window that holds nothing else.
type room struct {
	report reader.ReportRoom
	window [1]load.Report
}

// rooms lets reports use memory again: what was collected is done with when
// the next collection comes.
type rooms struct {
	mu    sync.Mutex
	spare []*room // ready for use
	lent  []*room // of the reports collected last
}

// take gives room for a report.
func (r *rooms) take() *room {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.spare)
	if n == 0 {
		return &room{}
	}
	out := r.spare[n-1]
	r.spare[n-1] = nil
	r.spare = r.spare[:n-1]
	return out
}

// turn makes what was lent ready for use, and gives an empty list for what will
// be lent next. What was not taken since the last time is too much, and let go.
func (r *rooms) turn() []*room {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.spare
	r.spare, r.lent = r.lent, nil
	clear(next)
	return next[:0]
}

// lend notes the rooms whose reports are collected.
func (r *rooms) lend(rooms []*room) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lent = rooms
}
