package sim

import (
	"math"
	"time"
)

// settling looks at where each group's requests go, tick by tick.
type settling struct {
	looks  []look
	looked bool
}

// look is the shares of all groups with demand, one after the other.
type look struct {
	at     time.Duration
	shares []float64
}

// settledPoints is how near the shares of the end all shares have to stay to
// count as settled.
const settledPoints = 0.02

// look takes down where requests go and gives how many requests/s go elsewhere
// than at the last look.
func (t *settling) look(w *world, now time.Duration) (moved float64) {
	l, marked := look{at: now}, len(w.sc.Marks) > 0
	for _, s := range w.services {
		for _, g := range s.groups {
			if g.rate <= 0 {
				if marked {
					l.shares = append(l.shares, g.mix...)
				}
				continue
			}
			away := 0.0
			for i := range g.mix {
				share := 0.0
				for _, p := range g.populations {
					share += p.rate / g.rate * p.mean.site[i]
				}
				away += math.Abs(share - g.mix[i])
				g.mix[i] = share
			}
			moved += g.rate * away / 2
			if marked {
				l.shares = append(l.shares, g.mix...)
			}
		}
	}
	first := !t.looked
	t.looked = true
	if first {
		moved = 0
	}
	if marked {
		t.looks = append(t.looks, l)
	}
	return moved
}

// after is how long after a disturbance, before the next one, shares last moved:
// the end of the last tick whose shares differ by more than settledPoints from
// those at the end.
func (t *settling) after(from, to time.Duration) time.Duration {
	first, end := -1, -1
	for i := range t.looks {
		if t.looks[i].at > from && first < 0 {
			first = i
		}
		if t.looks[i].at <= to {
			end = i
		}
	}
	if first < 0 || end < first {
		return 0
	}
	for i := end; i >= first; i-- {
		for j, x := range t.looks[i].shares {
			if math.Abs(x-t.looks[end].shares[j]) > settledPoints {
				return t.looks[i].at - from
			}
		}
	}
	return 0
}
