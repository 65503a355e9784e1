package server

import (
	"context"
	"time"

	"github.com/isobar-xds/isobar/internal/listen"
	"github.com/isobar-xds/isobar/internal/lrs"
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
	lrs  *lrs.Server
	body func() (used, most int64) // what bodies of the admin interface take; nil = there is none
	tell func(on bool)             // Options.Pressure; nil = nobody is told
}

func (s *Server) pressure() *pressure {
	p := &pressure{gate: s.gate, xds: s.services.xds, lrs: s.services.lrs, tell: s.opts.Pressure}
	if s.admin != nil {
		p.body = s.admin.BodyMemory
	}
	return p
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

// together is how much memory messages, answers, polls and load reports may use together before
// the heap would grow too far, bytes: each has a budget of its own.
const together = 512 << 20

// ordinary returns a budget of which four fifths count as half.
func ordinary(most int64) int64 { return most / 5 * 8 }

// used returns the largest part that is used of a budget: of the memory for messages and for answers,
// and of those for names of one address without certificate, for bodies of the admin interface, and
// for clients that poll and load reports, of one and of all; and of what messages, answers, polls and
// reports may use together.
//
// The load that the loop keeps of clients does not count. It is no garbage: it stays as long as its clients
// do, so a large honest fleet would make Go collect at an eighth above the memory in use for ever. An attack
// that fills it sends reports, which count meanwhile, and the limit is then set above what is kept.
func (p *pressure) used() (part float64) {
	of := func(used, most int64) { part = max(part, float64(used)/float64(max(1, most))) }
	use := p.gate.Use()
	of(use.Messages, use.MostMessages)
	of(2*use.Answers, use.MostAnswers) // what an answer was encoded from is garbage when it waits
	all := use.Messages + use.Answers
	of(p.xds.AccountMemory())
	if p.body != nil {
		used, most := p.body()
		of(2*used, most) // what a body was decoded to is garbage when the next one is
	}
	used, most, fullest, mostOfOne := p.xds.PollMemory()
	of(used, most)
	of(fullest, mostOfOne)
	all += used
	used, most, fullest, mostOfOne = p.lrs.ReportMemory()
	of(used, most)
	of(fullest, ordinary(mostOfOne)) // large fleets behind one address fill half of it with reports all the time
	of(all+used, together)
	return part
}
