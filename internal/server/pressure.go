package server

import (
	"context"
	"time"

	"github.com/isobar-xds/isobar/internal/listen"
	"github.com/isobar-xds/isobar/internal/xds"
)

// Parts of their budgets from which on what clients send counts as pressure on memory,
// and below which it no longer does.
const (
	pressureFrom  = 0.5
	pressureUntil = 0.25
	pressureEvery = 100 * time.Millisecond
)

// pressure tells while clients make the server use much of the memory that they may make it
// use, and when they no longer do.
type pressure struct {
	gate *listen.Gate
	xds  *xds.Server
	tell func(on bool) // Options.Pressure; nil = nobody is told
}

// follow tells until ctx ends.
func (p *pressure) follow(ctx context.Context) {
	if p.tell == nil {
		return
	}
	ticker := time.NewTicker(pressureEvery)
	defer ticker.Stop()
	told := false
	for {
		select {
		case <-ctx.Done():
			if told {
				p.tell(false)
			}
			return
		case <-ticker.C:
		}
		used := p.used()
		on := used >= pressureFrom || told && used >= pressureUntil
		if on || told {
			p.tell(on)
		}
		told = on
	}
}

// used returns the largest part that is used of a budget: of the memory for messages,
// of that for the names of one address without certificate, and of that for clients that poll.
func (p *pressure) used() (part float64) {
	messages := func() (used, most int64) {
		use := p.gate.Use()
		return use.Messages, use.MostMessages
	}
	for _, budget := range []func() (used, most int64){messages, p.xds.AccountMemory, p.xds.PollMemory} {
		used, most := budget()
		part = max(part, float64(used)/float64(max(1, most)))
	}
	return part
}
