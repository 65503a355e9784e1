package relay

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// keptCalls is of how many calls a replica keeps its clients' load reports, for a new
// leader: without them it would decide nothing before clients have reported again.
const keptCalls = 6

// keptWindows are the load reports of one call, with ages as of then.
type keptWindows struct {
	at    time.Time
	parts []*peerv1.Observations
}

// keepRecent keeps the load reports of a call.
func (r *Relay) keepRecent(parts []*peerv1.Observations, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	streams := 0
	r.kept = append(r.kept, keptWindows{now, parts})
	from := len(r.kept)
	for from > 0 && len(r.kept)-from < keptCalls {
		for _, p := range r.kept[from-1].parts {
			streams += len(p.GetWindows())
		}
		if streams > maxWaiting/2 { // a leader takes no more
			break
		}
		from--
	}
	r.kept = slices.Delete(r.kept, 0, from)
}

// recent returns the load reports of the last calls, with ages as of now.
func (r *Relay) recent(now time.Time) []*peerv1.Observations {
	r.mu.Lock()
	kept := slices.Clone(r.kept)
	r.mu.Unlock()
	var out []*peerv1.Observations
	for _, k := range kept {
		older := age(now, k.at)
		for _, p := range k.parts {
			o := proto.CloneOf(p)
			for _, w := range o.GetWindows() {
				w.OpenedAgeUs += older
				if w.ClosedAgeUs != nil {
					*w.ClosedAgeUs += older
				}
				for _, report := range w.GetReports() {
					report.AgeUs += older
				}
			}
			out = append(out, &peerv1.Observations{Windows: o.GetWindows()})
		}
	}
	return out
}

// ownWarm returns what this replica's own clients reported, at the first call since
// another replica decided with the reports of the last calls. A leader keeps them, too,
// for the next one.
func (r *Relay) ownWarm(own []load.StreamWindow, now time.Time) []load.StreamWindow {
	r.mu.Lock()
	first, others := r.followed, len(r.replicas) > 0
	r.followed = false
	r.mu.Unlock()
	var out []load.StreamWindow
	if first {
		for _, o := range r.recent(now) {
			before, err := readWindows(o.GetWindows(), now)
			if err != nil {
				continue // of this replica itself there is none that can't be read
			}
			for i := range before {
				before[i].Stream = load.StreamID(o.GetWindows()[i].GetStream())
			}
			out = append(out, before...)
		}
	}
	if first || others {
		r.keepRecent(windows(own, now), now)
	}
	if len(out) == 0 {
		return own
	}
	return merged(append(out, own...))
}
