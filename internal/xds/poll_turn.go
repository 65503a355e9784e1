package xds

import (
	"time"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// turn is a part of the life of assignments that grow stale. What a client that
// polls got in one turn it gets again in the next, even unchanged: an answer
// that nothing has changed does not keep its endpoints from growing stale. Turns
// are those of the clock, not of the client: several clients may look like one.
type turn struct {
	number int64         // 0 = nothing grows stale
	left   time.Duration // of the turn
}

// turn gives the turn of what a poller asks for: a third of the shortest life.
func (p *poller) turn(view *view.View, now time.Time) turn {
	all := view.Set().Lifetimes()
	if len(all) == 0 || p.key.as.Form == rpc.V2017 || resource.KindOf(p.key.url) != resource.Endpoints {
		return turn{}
	}
	var shortest time.Duration
	for _, n := range p.key.names.names {
		if stale := all[resource.ServiceOf(resource.Endpoints, n)].Stale; stale > 0 && (shortest == 0 || stale < shortest) {
			shortest = stale
		}
	}
	if shortest == 0 {
		return turn{}
	}
	length := int64(shortest / refreshShare)
	since := now.UnixNano()
	return turn{number: since / length, left: time.Duration(length - since%length)}
}

// over is told when the turn has ended; never where nothing grows stale.
func (t turn) over() <-chan time.Time {
	if t.number == 0 {
		return nil
	}
	return time.After(t.left)
}
