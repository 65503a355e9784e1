package relay

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// Bounds of one message: it stays far below the 4 MiB that a connection takes.
const (
	windowsPerPart = 500
	// bytesPerPart is how many bytes of windows, of subscriptions, of connected checkers or of
	// what else checkers told a message has at most, where it has more than one of them.
	bytesPerPart = 1 << 20
)

// checked is what checkers told, as the leader gets it. Times are ages, in nanoseconds. What
// is written is encoded entry by entry, to know its size.
type checked[Checker agedChecker | json.RawMessage, Vote aged[health.Report] | json.RawMessage, End aged[health.Ended] | json.RawMessage] struct {
	Votes []Vote `json:"votes,omitempty"`
	// Connected lists all checkers that are connected. Each message of a call has the whole
	// list, or else a part of it, which may be empty: Part is the number of the message then, from
	// 1, and Last marks the last one.
	Connected []Checker `json:"connected"`
	Part      int       `json:"part,omitempty"` // 0 = the list is whole
	Last      bool      `json:"last,omitempty"`
	Ended     []End     `json:"ended,omitempty"`
}

type (
	readChecked    = checked[agedChecker, aged[health.Report], aged[health.Ended]]
	writtenChecked = checked[json.RawMessage, json.RawMessage, json.RawMessage]
)

type aged[T any] struct {
	What T             `json:"what"`
	Age  time.Duration `json:"age"`
}

type agedChecker struct {
	Checker  health.Checker `json:"checker"`
	Since    time.Duration  `json:"since"`
	LastSeen time.Duration  `json:"last_seen"`
	// Stream tells the streams of a checker apart; 0 of earlier versions. It has no order.
	Stream uint64 `json:"stream,omitempty"`
}

// Observations takes what this replica's own clients and checkers told since the last
// call, to be sent to the leader. healthOnly leaves the clients for later. warm has it
// begin with the load reports of the last calls: the leader is a new one, and has none.
func (r *Relay) Observations(now time.Time, healthOnly, warm bool) []*peerv1.Observations {
	var out []*peerv1.Observations
	if !healthOnly {
		reported := windows(r.reports.Collect(now), now)
		r.reports.Release()
		if warm {
			out = r.recent(now)
		}
		r.keepRecent(reported, now)
		out = append(append(out, reported...), subscriptions(r.clients.Subscriptions(), now)...)
	}
	out = append(out, r.checked(now)...)
	version := r.standing.Version()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.followed = true
	for i, o := range out {
		r.sequence++
		o.Sequence, o.PlanVersion = r.sequence, version
		if !healthOnly {
			o.Part = uint32(i + 1)
		}
	}
	out[len(out)-1].Last = !healthOnly
	return out
}

// checked always returns one message: a replica without checkers says so. Earlier versions know
// no parts of the list of connected checkers, so a list that fits into a message is whole.
func (r *Relay) checked(now time.Time) []*peerv1.Observations {
	p := &checkedParts{}
	votes := r.checkers.Collect(now)
	connected, size := []json.RawMessage{}, 0
	for _, k := range r.checkers.Connected(now) {
		a := agedChecker{Checker: k, Since: now.Sub(k.Since), LastSeen: now.Sub(k.LastSeen), Stream: uint64(k.Since.UnixNano())}
		a.Checker.Since, a.Checker.LastSeen = time.Time{}, time.Time{}
		entry := encoded(a)
		connected, size = append(connected, entry), size+len(entry)
	}
	divided := size > bytesPerPart
	if p.whole = connected; divided {
		p.whole = nil
		for _, k := range connected {
			m := p.message(len(k))
			m.Connected = append(m.Connected, k)
		}
	}
	for _, e := range r.checkers.Ended() {
		age := now.Sub(e.At)
		e.At = time.Time{}
		entry := encoded(aged[health.Ended]{e, age})
		m := p.message(len(entry))
		m.Ended = append(m.Ended, entry)
	}
	for _, v := range votes {
		age := now.Sub(v.Arrived)
		v.Arrived = time.Time{}
		entry := encoded(aged[health.Report]{v, age})
		m := p.message(len(entry))
		m.Votes = append(m.Votes, entry)
	}
	p.message(0)
	out := make([]*peerv1.Observations, len(p.out))
	for i := range p.out {
		if divided {
			p.out[i].Part, p.out[i].Last = i+1, i == len(p.out)-1
		}
		out[i] = &peerv1.Observations{Health: encoded(p.out[i])}
	}
	return out
}

// checkedParts is what checkers told, in messages.
type checkedParts struct {
	whole []json.RawMessage // the connected checkers, which each message has; nil = they are divided
	out   []writtenChecked
	size  int // bytes of entries in the last one
}

// message returns the one that takes an entry of a size.
func (p *checkedParts) message(size int) *writtenChecked {
	if len(p.out) == 0 || p.size > 0 && p.size+size > bytesPerPart {
		p.out, p.size = append(p.out, writtenChecked{Connected: p.whole}), 0
	}
	p.size += size
	return &p.out[len(p.out)-1]
}

// encoded writes texts and numbers as JSON; of those there is none that can't be written.
func encoded(v any) []byte {
	data, err := json.Marshal(v) //nolint:musttag,nolintlint // the linter does not always see it
	if err != nil {
		return nil
	}
	return data
}

func windows(list []load.StreamWindow, now time.Time) []*peerv1.Observations {
	p := &windowMessages{}
	for i := range list {
		p.window(&list[i], now)
	}
	return p.out
}

// windowMessages are windows, in messages.
type windowMessages struct {
	out  []*peerv1.Observations
	size int // bytes of windows in the last one
}

// window adds a window. The leader joins the pieces of one that does not fit into a message.
func (p *windowMessages) window(w *load.StreamWindow, now time.Time) {
	piece := p.piece(w, now)
	for i := range w.Reports {
		r := report(&w.Reports[i], now)
		size := proto.Size(r)
		if shared := len(p.last().GetWindows()) > 1 || len(piece.GetReports()) > 0; shared && p.size+size > bytesPerPart {
			p.end()
			piece = p.piece(w, now)
		}
		piece.Reports, p.size = append(piece.Reports, r), p.size+size
		if size > bytesPerPart { // one that can't be sent takes neither other reports nor the end of the stream with it
			p.end()
			piece = p.piece(w, now)
		}
	}
	if !w.Closed.IsZero() { // the last piece ends the stream
		closed := age(now, w.Closed)
		piece.ClosedAgeUs = &closed
	}
}

// piece adds a window without reports to the last message.
func (p *windowMessages) piece(w *load.StreamWindow, now time.Time) *peerv1.StreamWindow {
	piece := &peerv1.StreamWindow{
		Stream: uint64(w.Stream), NodeId: w.Node.ID, NodeCluster: w.Node.Cluster, NodeLocality: locality(w.Node.Locality),
		Agent: uint32(w.Node.Agent), Account: w.Account, Identified: w.Identified, OpenedAgeUs: age(now, w.Opened),
	}
	p.add(piece, proto.Size(piece))
	return piece
}

// add adds a window of a size to the last message, or to a new one where that is full.
func (p *windowMessages) add(w *peerv1.StreamWindow, size int) {
	if len(p.out) == 0 || len(p.last().GetWindows()) == windowsPerPart || p.size+size > bytesPerPart {
		p.end()
	}
	last := p.last()
	last.Windows, p.size = append(last.Windows, w), p.size+size
}

func (p *windowMessages) last() *peerv1.Observations { return p.out[len(p.out)-1] }

// end ends the last message: what follows is in another one.
func (p *windowMessages) end() { p.out, p.size = append(p.out, &peerv1.Observations{}), 0 }

func report(r *load.Report, now time.Time) *peerv1.Report {
	out := &peerv1.Report{AgeUs: age(now, r.Arrived), Refused: r.Refused, ByArrival: r.ByArrival}
	for i := range r.Services {
		s := &r.Services[i]
		p := &peerv1.ServiceReport{Service: s.Service, IntervalUs: micros(s.Interval), Dropped: s.Dropped}
		for _, d := range s.DroppedBy {
			p.DroppedBy = append(p.DroppedBy, &peerv1.DropCount{Category: d.Category, Count: d.Count})
		}
		for j := range s.Localities {
			p.Localities = append(p.Localities, localityReport(&s.Localities[j]))
		}
		out.Services = append(out.Services, p)
	}
	return out
}

func localityReport(l *load.LocalityReport) *peerv1.LocalityReport {
	out := &peerv1.LocalityReport{
		Issued: l.Issued, Succeeded: l.Succeeded, Errors: l.Errors, InProgress: l.InProgress, Priority: uint32(l.Priority), HasIssued: l.HasIssued,
	}
	if l.Locality != nil {
		out.Locality = locality(*l.Locality)
	}
	if l.Details == nil {
		return out
	}
	for _, m := range l.Details.Metrics {
		out.Metrics = append(out.Metrics, &peerv1.MetricSum{Name: m.Name, Requests: m.Requests, Total: m.Total})
	}
	for _, e := range l.Details.Endpoints {
		out.Endpoints = append(out.Endpoints, &peerv1.EndpointReport{
			Address: e.Address, Issued: e.Issued, Succeeded: e.Succeeded, Errors: e.Errors, InProgress: e.InProgress,
		})
	}
	return out
}

// subscriptions always returns one message: a replica without clients says so.
func subscriptions(list []load.Subscription, now time.Time) []*peerv1.Observations {
	last := &peerv1.Observations{}
	out, total := []*peerv1.Observations{last}, 0
	for i := range list {
		s := &list[i]
		p := &peerv1.Subscription{Service: s.Service, Locality: locality(s.Source), Streams: uint32(s.Streams)} //nolint:gosec // a process has few
		if !s.AckedAt.IsZero() {
			acked := age(now, s.AckedAt)
			p.AcknowledgedAgeUs = &acked
		}
		size := proto.Size(p)
		if total > 0 && total+size > bytesPerPart {
			last, total = &peerv1.Observations{}, 0
			out = append(out, last)
		}
		last.Subscriptions, total = append(last.Subscriptions, p), total+size
	}
	return out
}

func locality(l isobar.Locality) *peerv1.Locality {
	return &peerv1.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
}

func age(now, at time.Time) uint64 { return micros(now.Sub(at)) }

func micros(d time.Duration) uint64 { return uint64(max(0, d.Microseconds())) }
