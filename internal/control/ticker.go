package control

import "time"

// ticker tells when the next tick is due. A changed period counts from the
// last tick on, and the same one changes nothing: a configuration that is
// reloaded more often than ticks come would else keep all of them away.
type ticker struct {
	timer  *time.Timer
	period time.Duration // from the last tick to due
	due    time.Time
}

func newTicker(period time.Duration) *ticker {
	return &ticker{timer: time.NewTimer(period), period: period, due: time.Now().Add(period)}
}

// retime sets another period; a tick that is overdue by now comes at once.
func (m *ticker) retime(period time.Duration) {
	if period == m.period {
		return
	}
	m.due = m.due.Add(period - m.period)
	m.period = period
	m.timer.Reset(max(0, time.Until(m.due)))
}

// ticked sets the next tick, after one that began at started. A late tick moves
// the next one; ticks never pile up.
func (m *ticker) ticked(started time.Time, period time.Duration) {
	wait := max(period/4, period-time.Since(started))
	m.period, m.due = period, time.Now().Add(wait)
	m.timer.Reset(wait)
}

// alarm is a timer that changes may bring forward, and never put off.
type alarm struct {
	timer *time.Timer
	due   time.Time
}

func newAlarm(after time.Duration) *alarm {
	return &alarm{timer: time.NewTimer(after), due: time.Now().Add(after)}
}

// set sets when it is due.
func (a *alarm) set(after time.Duration) {
	a.due = time.Now().Add(after)
	a.timer.Reset(after)
}

// within has it come after that time at the latest.
func (a *alarm) within(after time.Duration) {
	if time.Until(a.due) > after {
		a.set(after)
	}
}
