package load

import (
	"cmp"
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
)

// ClientDeviation is a client whose requests do not land as its source was told.
type ClientDeviation struct {
	Node    string  // node.id
	Cluster string  // node.cluster
	Rate    float64 // requests/s
	Points  float64 // by how much a share is at least off, percent

	To      isobar.Locality // that gets most of its requests
	ToShare float64         // of its requests, 0 to 1
}

const (
	// maxDeviants bounds the clients that a deviation names.
	maxDeviants = 5
	// clientPoints is how far a client's share has to be from all shares that were in
	// force, as a fraction of its requests.
	clientPoints = offPoints + steadyPoints
	// clientChance is the negated logarithm of the probability up to which a share is
	// beyond chance, in one window. A client that follows is off in offWindows of them in
	// a row with a probability of at most e^-30: with 50,000 clients of a service, windows
	// of 10 s and 10 shares each that is one false name in three years.
	clientChance = 10.0
)

// Name judges single clients of a service, and names those that do not follow their shares: the
// largest clients of a source that deviates (see Deviating), or any clients if a source has too
// few clients to deviate, or its shares change too fast to judge it (see Individual). Call it
// after each Observe, with the deviations that Observe returned.
func (e *Adherence) Name(f *Deviations, t *Table) {
	service, known := t.services[f.Service], e.services[f.Service]
	if service == nil || known == nil {
		return
	}
	for _, src := range service.sources {
		i, planned := known.find(src.locality)
		if !planned {
			continue
		}
		evidence := known.sources[i]
		src.judgeClients(evidence, t)
		j, deviates := slices.BinarySearchFunc(f.Deviating, src.locality, compareDeviation)
		switch {
		case deviates:
			d := &f.Deviating[j]
			if d.Clients, d.Others = src.deviants(strayed, t); len(d.Clients) == 0 {
				d.Clients = src.onlyClient(d.Points, t)
			}
		case !evidence.loses():
			if clients, others := src.deviants(strays, t); len(clients) > 0 {
				f.Individual = append(f.Individual, Deviation{
					Source: src.locality, Points: clients[0].Points, Cause: CauseUnknown, Clients: clients, Others: others,
				})
			}
		}
	}
}

// judgeClients counts for each client the windows in a row that are off the shares that
// were in force, as they come.
func (s *source) judgeClients(evidence *sourceEvidence, t *Table) {
	// One range for all windows since the previous tick: it is wider than the range of each
	// window, by the changes within a tick.
	from, to := len(evidence.generations), 0
	for _, f := range s.flows {
		if !unjudged(f, t) {
			continue
		}
		if base := evidence.acknowledged(f.window.since); base >= 0 {
			from, to = min(from, base), max(to, evidence.before(base, f.window.until))
		}
	}
	var spans []span
	if from < to {
		spans = join(evidence.generations[from:to])
	}
	for _, f := range s.flows {
		if !unjudged(f, t) {
			continue
		}
		f.judged = uint8(f.windows) //nolint:gosec // it wraps: the next window has another one
		if evidence.acknowledged(f.window.since) < 0 {
			continue
		}
		points, off := f.window.off(spans)
		if !off {
			f.off = 0
			continue
		}
		f.off, f.points = min(f.off+1, offWindows), uint8(100*points+0.5)
	}
}

// strayed reports whether the newest window of a flow was off the shares.
func strayed(f *flow) bool { return f.off > 0 }

// strays reports whether a flow is off the shares whatever its source does: for windows
// in a row, and not because its client uses lower tiers.
func strays(f *flow) bool {
	if f.off < offWindows {
		return false
	}
	lower := 0.0
	for i := range f.window.sites {
		if s := &f.window.sites[i]; s.priority > 0 {
			lower += s.issued
		}
	}
	return lower <= failsOver*f.window.issued
}

// unjudged reports whether a flow has a window that says something of its client and that
// judgeClients has not seen. A window that is prolonged holds requests of the one before.
func unjudged(f *flow, t *Table) bool {
	if f.judged == uint8(f.windows) || f.extended { //nolint:gosec // see judgeClients
		return false
	}
	_, fresh := f.trust(t.snapshotAt, t.interval)
	return fresh
}

// deviants lists the clients of a source that are off, the largest first, and counts those
// beyond maxDeviants.
func (s *source) deviants(off func(*flow) bool, t *Table) (named []ClientDeviation, others int) {
	type key struct{ node, cluster string }
	var found map[key]ClientDeviation
	var sent map[key]sums
	for _, f := range s.flows {
		if !off(f) {
			continue
		}
		if _, fresh := f.trust(t.snapshotAt, t.interval); !fresh {
			continue
		}
		if found == nil {
			found, sent = map[key]ClientDeviation{}, map[key]sums{}
		}
		k := key{f.stream.node.ID, f.stream.node.Cluster}
		x := found[k] // a client may have several streams
		found[k] = ClientDeviation{Node: k.node, Cluster: k.cluster, Rate: x.Rate + f.window.issued, Points: max(x.Points, float64(f.points))}
		sent[k] = sent[k].add(&f.window)
	}
	for k, x := range found { //isobar:sorted the list is sorted below
		x.To, x.ToShare = sent[k].most()
		named = append(named, x)
	}
	slices.SortFunc(named, func(a, b ClientDeviation) int {
		return cmp.Or(cmp.Compare(b.Rate*b.Points, a.Rate*a.Points), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Cluster, b.Cluster))
	})
	others = max(0, len(named)-maxDeviants)
	return named[:len(named)-others], others
}

// onlyClient names the client of a source that has one: what the source does, it does, also where
// its newest window alone does not show it.
func (s *source) onlyClient(points float64, t *Table) []ClientDeviation {
	var only []ClientDeviation
	var sent sums
	for _, f := range s.flows {
		if _, fresh := f.trust(t.snapshotAt, t.interval); !fresh {
			continue
		}
		n := &f.stream.node
		switch {
		case only == nil:
			only = []ClientDeviation{{Node: n.ID, Cluster: n.Cluster, Rate: f.window.issued, Points: points}}
		case only[0].Node != n.ID || only[0].Cluster != n.Cluster:
			return nil
		default:
			only[0].Rate += f.window.issued
		}
		sent = sent.add(&f.window)
	}
	if only != nil {
		only[0].To, only[0].ToShare = sent.most()
	}
	return only
}

// sums is what a client sends to each locality; there are few of them.
type sums []landed

type landed struct {
	at   isobar.Locality
	rate float64 // requests/s
}

func (s sums) add(w *window) sums {
	for i := range w.sites {
		at := isobar.Locality{}
		if l := w.sites[i].locality; l != nil {
			at = *l
		}
		k := slices.IndexFunc(s, func(x landed) bool { return x.at == at })
		if k < 0 {
			k, s = len(s), append(s, landed{at: at})
		}
		s[k].rate += w.sites[i].issued
	}
	return s
}

// most returns the locality that gets most, and its share.
func (s sums) most() (to isobar.Locality, share float64) {
	all, most := 0.0, 0.0
	for _, x := range s {
		all += x.rate
		if x.rate > most || x.rate == most && x.at.Compare(to) < 0 {
			to, most = x.at, x.rate
		}
	}
	if all <= 0 {
		return isobar.Locality{}, 0
	}
	return to, most / all
}

// off reports whether a share of a window is outside the range of the shares that were in force,
// beyond chance, and by how much at least, as a fraction. Failed requests say nothing: clients
// avoid failing endpoints by themselves. spans are sorted by locality, as the window is.
func (w *window) off(spans []span) (points float64, off bool) {
	requests := w.issued * w.length.Seconds()
	if len(spans) == 0 || requests < enoughProbes || w.errors > failsOver*w.issued {
		return 0, false
	}
	judge := func(rate, low, high float64) {
		share := rate / w.issued
		edge := min(max(share, low), high) // of the range, the share that explains it best
		points = max(points, math.Abs(share-edge))
		off = off || math.Abs(share-edge) > clientPoints && requests*divergence(share, edge) > clientChance
	}
	rest, k := 0.0, 0 // rest is where nothing was planned
	for i := range spans {
		rate := 0.0
		for ; k < len(w.sites); k++ {
			order := w.sites[k].compare(&spans[i].locality)
			if order > 0 {
				break
			}
			if order == 0 {
				rate = w.sites[k].issued
			} else {
				rest += w.sites[k].issued
			}
		}
		judge(rate, spans[i].low, spans[i].high)
	}
	for ; k < len(w.sites); k++ {
		rest += w.sites[k].issued
	}
	judge(rest, 0, 0)
	return points, off
}

// divergence is the Kullback-Leibler divergence of two coins. Of n requests that each go
// somewhere with a probability of at most p, the part q > p does with a probability of
// at most exp(-n*divergence(q, p)) (Chernoff), also where the probability differs from
// request to request; and likewise below.
func divergence(q, p float64) float64 {
	return term(q, p) + term(1-q, 1-p)
}

func term(q, p float64) float64 {
	switch {
	case q <= 0:
		return 0
	case p <= 0:
		return math.Inf(1)
	}
	return q * math.Log(q/p)
}
