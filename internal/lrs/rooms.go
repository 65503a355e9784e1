package lrs

import (
	"sync"

	"github.com/isobar-xds/isobar/internal/wire"
)

// rooms lets reports use memory again: what was collected is done with when
// the next collection comes.
type rooms struct {
	mu    sync.Mutex
	spare []*wire.ReportRoom // ready for use
	lent  []*wire.ReportRoom // of the reports collected last
}

// take gives room for a report.
func (r *rooms) take() *wire.ReportRoom {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.spare)
	if n == 0 {
		return &wire.ReportRoom{}
	}
	room := r.spare[n-1]
	r.spare[n-1] = nil
	r.spare = r.spare[:n-1]
	return room
}

// lend notes rooms whose reports are collected.
func (r *rooms) lend(rooms []*wire.ReportRoom) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lent = append(r.lent, rooms...)
}

// recycle makes what was lent ready for use. What was not taken since the last
// time is too much, and let go.
func (r *rooms) recycle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spare, r.lent = r.lent, r.spare
	clear(r.lent)
	r.lent = r.lent[:0]
}
