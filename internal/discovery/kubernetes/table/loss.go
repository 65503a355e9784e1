package table

import "time"

// lossWindow is within how long endpoints stop being ready that are lost at once.
const lossWindow = 30 * time.Second

// loss watches whether most endpoints of a Service stop being ready at once
// while none of them ends. So it looks when what their readiness depends on
// fails, or a network part: not when Pods are replaced. Those endpoints are then
// listed as unhealthy, for clients to try where nothing better is left. Others
// that are not ready are not listed.
type loss struct {
	ready map[string]bool      // those that were ready when looked at last
	since map[string]time.Time // when those stopped that are still listed
	ended time.Time            // when one that had been ready ended, last
	held  map[string]bool
}

// look notes what has become of the endpoints, and marks those that are held.
func (l *loss) look(members []member, now time.Time) {
	state := make(map[string]*member, len(members))
	for i := range members {
		state[members[i].id] = &members[i]
	}
	l.forget(state, now)
	ready := make(map[string]bool, len(members))
	for i := range members {
		m := &members[i]
		if m.State == Ready {
			ready[m.id] = true
			continue
		}
		if l.ready[m.id] && !m.Terminating {
			l.note(m.id, now)
		}
	}
	for id := range l.ready { //isobar:sorted any of them gives the same time
		if m := state[id]; m == nil || m.State != Ready && m.Terminating {
			l.ended = now
		}
	}
	l.ready = ready
	l.judge(now)
	for id := range l.held { //isobar:sorted each by itself
		state[id].held = true
	}
}

// forget drops endpoints that are ready again, end or are gone, and those that
// stopped too long ago to be part of what happens now.
func (l *loss) forget(state map[string]*member, now time.Time) {
	for id, at := range l.since { //isobar:sorted each by itself
		m := state[id]
		switch {
		case m == nil || m.State != Ready && m.Terminating:
			l.ended = now
			delete(l.since, id)
			delete(l.held, id)
		case m.State == Ready:
			delete(l.since, id)
			delete(l.held, id)
		case !l.held[id] && now.Sub(at) > lossWindow:
			delete(l.since, id)
		}
	}
}

func (l *loss) note(id string, now time.Time) {
	if l.since == nil {
		l.since = map[string]time.Time{}
	}
	l.since[id] = now
	if len(l.held) > 0 { // it goes on
		l.held[id] = true
	}
}

// judge begins to hold, and ends once half of the endpoints are ready again.
func (l *loss) judge(now time.Time) {
	if len(l.held) > 0 {
		if len(l.held) <= len(l.ready) {
			l.held = nil
		}
		return
	}
	quiet := l.ended.IsZero() || now.Sub(l.ended) > lossWindow
	if len(l.since) > len(l.ready) && quiet {
		l.held = make(map[string]bool, len(l.since))
		for id := range l.since { //isobar:sorted a copy of a set
			l.held[id] = true
		}
	}
}
