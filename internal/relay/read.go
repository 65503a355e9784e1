package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// maxAge bounds ages that another replica tells.
const maxAge = 30 * 24 * time.Hour

// maxText bounds names of nodes and services that another replica tells, in bytes.
const maxText = 4096

// Receive takes what another replica's clients and checkers told. It is dropped where
// this replica does not decide. An error says what is wrong: windows, subscriptions or states of
// checkers that are wrong are dropped, and the others of the message are taken.
func (r *Relay) Receive(name string, incarnation uint64, o *peerv1.Observations, now time.Time) error {
	if !r.standing.Leads() {
		return nil
	}
	windows, badWindows := readWindows(o.GetWindows(), now)
	subscribed, badSubscriptions := readSubscriptions(o.GetSubscriptions(), now)
	checked, badHealth := readHealth(o.GetHealth())
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.remote(name, incarnation, now)
	q.heard = now
	if badWindows == nil {
		badWindows = r.keep(q, o.GetWindows(), windows)
	}
	badSubscriptions = q.keepSubscriptions(o, subscribed, badSubscriptions)
	if checked != nil {
		q.keepHealth(checked, now)
		r.signal()
	}
	return errors.Join(badWindows, badSubscriptions, badHealth)
}

// readHealth reads what checkers told; nil = nothing.
func readHealth(data []byte) (*readChecked, error) {
	if len(data) == 0 {
		return nil, nil //nolint:nilnil // nothing was told
	}
	var c readChecked
	if err := json.Unmarshal(data, &c); err != nil { //nolint:musttag,nolintlint // the linter does not always see it
		return nil, fmt.Errorf("states of checkers: %w", err)
	}
	if len(c.Votes)+len(c.Connected)+len(c.Ended) > maxVotes {
		return nil, errors.New("states of checkers: too many at once")
	}
	return &c, nil
}

// remote returns what is known of a replica. A new incarnation has new streams: those
// of the one before are closed.
func (r *Relay) remote(name string, incarnation uint64, now time.Time) *remote {
	q := r.replicas[name]
	if q == nil {
		q = &remote{incarnation: incarnation, streams: map[uint64]*remoteStream{}, memory: newBudget(waitingMemory, waitingOfOne)}
		r.replicas[name] = q
	}
	if q.incarnation != incarnation {
		closed := slices.Concat(q.waiting, q.closeAll(now))
		*q = remote{incarnation: incarnation, streams: map[uint64]*remoteStream{}, waiting: closed, memory: q.memory}
	}
	return q
}

// keepSubscriptions takes the next part of the list of subscriptions, which bad says can't be read. A
// list of which a message is missing does not count: its rest and the next one would be counted
// together. Earlier versions number no parts: where the first message of their list is missing shows
// only by the message before it.
func (q *remote) keepSubscriptions(o *peerv1.Observations, list []load.Subscription, bad error) error {
	part, follows := o.GetPart(), o.GetSequence() == q.sequence+1
	first := part == 1 || part == 0 && q.sequence == 0
	if first {
		q.arriving = nil
	}
	q.torn = !first && (q.torn || !follows) || bad != nil
	if q.sequence = o.GetSequence(); !q.torn && len(q.arriving)+len(list) > maxSubscriptions {
		q.torn, bad = true, errors.New("too many subscriptions")
	}
	if q.arriving = append(q.arriving, list...); q.torn {
		q.arriving = nil
	}
	if o.GetLast() {
		if !q.torn {
			q.subscribed, q.version = q.arriving, o.GetPlanVersion()
		}
		q.arriving, q.torn = nil, false
	}
	return bad
}

// keep books windows under ids of this process. Where there is no memory for the reports of one, it says only
// that the stream is there, or that it ended.
func (r *Relay) keep(q *remote, told []*peerv1.StreamWindow, windows []load.StreamWindow) error {
	if len(q.waiting)+len(windows) > maxWaiting {
		return errors.New("too many load reports wait")
	}
	delay := r.standing.Tick() // what came just after a tick of the other replica is sent at its next one
	for i := range windows {
		id := told[i].GetStream()
		s := q.streams[id]
		if s == nil {
			if len(q.streams) >= maxStreams {
				return errors.New("too many load report streams")
			}
			r.lastID++
			s = &remoteStream{id: r.lastID}
			q.streams[id] = s
		}
		w := windows[i]
		w.Stream, w.Delay = s.id, delay
		if len(w.Reports) > 0 && !q.memory.take(windowAddress(told[i]), proto.Size(told[i])) {
			w.Reports, r.unkept = nil, r.unkept+1
		}
		q.waiting = append(q.waiting, w)
		s.window = w
		s.window.Reports = nil
		if !w.Closed.IsZero() {
			delete(q.streams, id)
		}
	}
	return nil
}

func (q *remote) keepHealth(c *readChecked, now time.Time) {
	if len(q.votes) > maxVotes {
		q.votes = nil // nobody collects
	}
	for i := range c.Votes {
		v := c.Votes[i].What
		v.Arrived = before(now, c.Votes[i].Age)
		q.votes = append(q.votes, v)
	}
	for i := range c.Ended {
		e := c.Ended[i].What
		e.At = before(now, c.Ended[i].Age)
		if len(q.ended) < maxVotes {
			q.ended = append(q.ended, e)
		}
	}
	q.keepConnected(c, now)
}

// keepConnected takes the list of connected checkers, or the next part of it. A list of which a
// part is missing does not count: the next one comes soon.
func (q *remote) keepConnected(c *readChecked, now time.Time) {
	list := make([]remoteChecker, len(c.Connected))
	for i := range c.Connected {
		list[i] = q.checker(&c.Connected[i], now)
	}
	if c.Part <= 1 { // the whole list, or the beginning of another one
		q.part, q.connecting = 0, nil
	}
	switch {
	case c.Part == 0:
		q.connect(list, now)
	case c.Part != q.part+1 || len(q.connecting)+len(list) > maxVotes:
		q.part, q.connecting = -1, nil // no part follows that
	default:
		q.part, q.connecting = c.Part, append(q.connecting, list...)
		if c.Last {
			q.connect(q.connecting, now)
			q.connecting = nil
		}
	}
}

// connect takes a whole list of connected checkers.
func (q *remote) connect(list []remoteChecker, now time.Time) {
	q.connected, q.connectedAt = list, now
	q.checkers = make(map[string]remoteChecker, len(list))
	for i := range list {
		q.checkers[list[i].ID] = list[i]
	}
}

// sameStream is by how much the times at which a checker's stream opened may differ where an
// earlier version does not number streams: messages do not take equally long.
const sameStream = time.Second

// checker reads a connected checker. Since of its stream stays as it was first told: ages that
// travel make it differ from message to message, and another Since means another stream, whose
// checker begins again.
func (q *remote) checker(a *agedChecker, now time.Time) remoteChecker {
	out := remoteChecker{a.Checker, a.Stream}
	out.Since, out.LastSeen = before(now, a.Since), before(now, a.LastSeen)
	was, found := q.checkers[out.ID]
	if found && was.stream == out.stream && (out.stream != 0 || was.Since.Sub(out.Since).Abs() < sameStream) {
		out.Since = was.Since
	}
	return out
}

func before(now time.Time, age time.Duration) time.Time { return now.Add(-min(max(0, age), maxAge)) }

func ago(now time.Time, us uint64) time.Time {
	return now.Add(-time.Duration(min(us, uint64(maxAge.Microseconds()))) * time.Microsecond) //nolint:gosec // bounded
}

var errText = errors.New("a text is too long, or is not valid UTF-8")

func checkTexts(texts ...string) error {
	for _, t := range texts {
		if len(t) > maxText || !utf8.ValidString(t) {
			return errText
		}
	}
	return nil
}

func readLocality(l *peerv1.Locality) isobar.Locality {
	return isobar.Locality{Region: l.GetRegion(), Zone: l.GetZone(), SubZone: l.GetSubZone()}
}

func checkLocality(l *peerv1.Locality) error {
	return checkTexts(l.GetRegion(), l.GetZone(), l.GetSubZone())
}

func readWindows(list []*peerv1.StreamWindow, now time.Time) ([]load.StreamWindow, error) {
	out := make([]load.StreamWindow, len(list))
	for i, w := range list {
		if err := errors.Join(checkTexts(w.GetNodeId(), w.GetNodeCluster(), w.GetAccount()), checkLocality(w.GetNodeLocality())); err != nil {
			return nil, fmt.Errorf("a load report stream: %w", err)
		}
		out[i] = load.StreamWindow{
			Node: load.Node{
				ID: w.GetNodeId(), Cluster: w.GetNodeCluster(), Locality: readLocality(w.GetNodeLocality()),
				Agent: load.Agent(min(w.GetAgent(), uint32(load.AgentGRPC))),
			},
			Account: w.GetAccount(), Identified: w.GetIdentified(), Opened: ago(now, w.GetOpenedAgeUs()),
		}
		if w.ClosedAgeUs != nil {
			out[i].Closed = ago(now, w.GetClosedAgeUs())
		}
		for _, p := range w.GetReports() {
			r, err := readReport(p, now)
			if err != nil {
				return nil, fmt.Errorf("a load report of node %q: %w", w.GetNodeId(), err)
			}
			out[i].Reports = append(out[i].Reports, r)
		}
	}
	return out, nil
}

func readReport(p *peerv1.Report, now time.Time) (load.Report, error) {
	out := load.Report{Arrived: ago(now, p.GetAgeUs()), Refused: p.GetRefused(), ByArrival: p.GetByArrival()}
	if err := checkTexts(p.GetRefused()...); err != nil {
		return out, err
	}
	for _, s := range p.GetServices() {
		if err := checkTexts(s.GetService()); err != nil {
			return out, err
		}
		r := load.ServiceReport{
			Service: s.GetService(), Dropped: s.GetDropped(),
			Interval: time.Duration(min(s.GetIntervalUs(), uint64(maxAge.Microseconds()))) * time.Microsecond, //nolint:gosec // bounded
		}
		for _, d := range s.GetDroppedBy() {
			if err := checkTexts(d.GetCategory()); err != nil {
				return out, err
			}
			r.DroppedBy = append(r.DroppedBy, load.DropCount{Category: d.GetCategory(), Count: d.GetCount()})
		}
		for _, l := range s.GetLocalities() {
			read, err := readLocalityReport(l)
			if err != nil {
				return out, err
			}
			r.Localities = append(r.Localities, read)
		}
		out.Services = append(out.Services, r)
	}
	return out, nil
}

func readLocalityReport(p *peerv1.LocalityReport) (load.LocalityReport, error) {
	out := load.LocalityReport{
		Issued: p.GetIssued(), Succeeded: p.GetSucceeded(), Errors: p.GetErrors(), InProgress: p.GetInProgress(),
		Priority: uint16(min(p.GetPriority(), math.MaxUint16)), HasIssued: p.GetHasIssued(),
	}
	if p.GetLocality() != nil {
		if err := checkLocality(p.GetLocality()); err != nil {
			return out, err
		}
		l := readLocality(p.GetLocality())
		out.Locality = &l
	}
	if len(p.GetMetrics())+len(p.GetEndpoints()) == 0 {
		return out, nil
	}
	out.Details = &load.LocalityDetails{}
	for _, m := range p.GetMetrics() {
		if err := checkTexts(m.GetName()); err != nil {
			return out, err
		}
		if t := m.GetTotal(); math.IsNaN(t) || math.IsInf(t, 0) || t < 0 {
			return out, fmt.Errorf("metric %q is %v", m.GetName(), t)
		}
		out.Details.Metrics = append(out.Details.Metrics, load.MetricSum{Name: m.GetName(), Requests: m.GetRequests(), Total: m.GetTotal()})
	}
	for _, e := range p.GetEndpoints() {
		if err := checkTexts(e.GetAddress()); err != nil {
			return out, err
		}
		out.Details.Endpoints = append(out.Details.Endpoints, load.EndpointReport{
			Address: e.GetAddress(), Issued: e.GetIssued(), Succeeded: e.GetSucceeded(), Errors: e.GetErrors(), InProgress: e.GetInProgress(),
		})
	}
	return out, nil
}

func readSubscriptions(list []*peerv1.Subscription, now time.Time) ([]load.Subscription, error) {
	out := make([]load.Subscription, len(list))
	for i, s := range list {
		if err := errors.Join(checkTexts(s.GetService()), checkLocality(s.GetLocality())); err != nil {
			return nil, fmt.Errorf("a subscription: %w", err)
		}
		out[i] = load.Subscription{Service: s.GetService(), Source: readLocality(s.GetLocality()), Streams: int(s.GetStreams())}
		if s.AcknowledgedAgeUs != nil {
			out[i].Acked, out[i].AckedAt = out[i].Streams, ago(now, s.GetAcknowledgedAgeUs())
		}
	}
	return out, nil
}
