package hds

import "time"

// How often a checker may report, in the long run and at once. Real ones report once in an
// interval; what has waited while a connection hung comes at once. Every report counts, since it
// may tell of a failure, so a checker beyond its pace is read slowly instead: its transport fills
// up, and it has to wait.
const (
	reportsPerInterval = 16
	reportBurst        = 64
)

// slowDown waits after a message of a checker that is beyond its pace.
func (st *stream) slowDown() {
	s, now := st.server, time.Now()
	interval := s.interval()
	each := interval / reportsPerInterval
	wait := st.pace.Wait(now, each, reportBurst)
	st.pace.Take(each)
	if wait == 0 {
		return
	}
	s.excessive(st.checker, st.peer, interval, now)
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-st.grpc.Context().Done():
	}
}
