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
	at      time.Time
	windows []keptWindow
}

// keptWindow is a window as it is sent, which takes a sixth of the memory that it takes decoded.
type keptWindow struct {
	address string // see windowAddress
	encoded []byte
}

// keptBytes is the size of a window beside what it holds: of the entry itself, and its share of the memory
// that is allocated in steps.
const keptBytes = 64

// keepRecent keeps the load reports of a call, and of the calls before what there is memory for.
func (r *Relay) keepRecent(parts []*peerv1.Observations, now time.Time) {
	b := newBudget(keptMemory, keptOfOne)
	newest, streams := encodeWindows(parts, now, b), 0
	r.mu.Lock()
	defer r.mu.Unlock()
	var kept []keptWindows
	for i, k := range slices.Backward(append(r.kept, newest)) {
		streams += len(k.windows)
		if len(kept) == keptCalls || streams > maxWaiting/2 { // a leader takes no more
			break
		}
		if i < len(r.kept) { // the newest is in the budget
			k = k.within(b)
		}
		kept = append(kept, k)
	}
	slices.Reverse(kept)
	r.kept, r.unkept = kept, r.unkept+b.refused
}

// encodeWindows encodes the windows that there is memory for.
func encodeWindows(parts []*peerv1.Observations, now time.Time, b *budget) keptWindows {
	out := keptWindows{at: now}
	for _, p := range parts {
		for _, w := range p.GetWindows() {
			address := windowAddress(w)
			if !b.take(address, keptBytes+proto.Size(w)) {
				continue
			}
			if data, err := proto.Marshal(w); err == nil { // of texts that a client sent, none fails
				out.windows = append(out.windows, keptWindow{address, data})
			}
		}
	}
	return out
}

// within returns the windows that there is memory for, beside those of later calls. What others
// read is not changed.
func (k keptWindows) within(b *budget) keptWindows {
	out := keptWindows{at: k.at, windows: make([]keptWindow, 0, len(k.windows))}
	for _, w := range k.windows {
		if b.take(w.address, keptBytes+len(w.encoded)) {
			out.windows = append(out.windows, w)
		}
	}
	return out
}

// recent returns the load reports of the last calls, with ages as of now.
func (r *Relay) recent(now time.Time) []*peerv1.Observations {
	r.mu.Lock()
	kept := slices.Clone(r.kept)
	r.mu.Unlock()
	p := &windowMessages{}
	for _, k := range kept {
		older := age(now, k.at)
		for _, encoded := range k.windows {
			w := &peerv1.StreamWindow{}
			if err := proto.Unmarshal(encoded.encoded, w); err != nil {
				continue // of what this replica wrote there is none that can't be read
			}
			w.OpenedAgeUs += older
			if w.ClosedAgeUs != nil {
				*w.ClosedAgeUs += older
			}
			for _, report := range w.GetReports() {
				report.AgeUs += older
			}
			p.add(w, len(encoded.encoded))
		}
	}
	return p.out
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
