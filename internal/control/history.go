package control

import (
	"context"

	"github.com/isobar-xds/isobar/internal/plan"
)

// startHistory takes up the history of an earlier process. It is worth having,
// but not worth refusing to serve: what can't be read is left behind.
func (l *Loop) startHistory(saved *plan.Saved) {
	pages, err := l.opts.State.LoadHistory()
	if err != nil {
		l.log.Error("the history of earlier plans can't be read; it begins anew", "error", err)
	}
	l.history = plan.NewHistory(pages, saved)
}

// note adds a change to the history.
func (l *Loop) note(c plan.Change) {
	page := l.history.Add(c)
	if n := len(l.pages); n > 0 && l.pages[n-1].Number == page.Number {
		l.pages = l.pages[:n-1]
	}
	l.pages = append(l.pages, page)
	l.opts.Changed(c)
}

// History lists what changed a service, or every change for an empty name,
// newest first.
func (l *Loop) History(ctx context.Context, service string) ([]plan.Change, error) {
	return ask(ctx, l, func() []plan.Change { return l.history.Changes(service) })
}
