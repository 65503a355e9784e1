package xds

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// localityGroup is what all streams of one source locality share: the view, and who
// has acknowledged which assignment.
type localityGroup struct {
	locality isobar.Locality
	appeared func() // called when a service is subscribed that was not before
	names    *nameBudget
	members  int // streams; guarded by Server.mu

	updating sync.Mutex // held by the one that brings the view up to date

	// mu may be taken while a stream's lock is held, never the other way.
	mu      sync.Mutex
	view    *view.View
	changed chan struct{} // closed and replaced when view changes
	streams []*stream     // in the order in which they came, about
	subs    map[subKey]*subscription
	// wanted counts the subs of each service, which may have several names. A sub whose
	// name is an alias counts for both services that the name may stand for.
	wanted  map[string]int
	aliases int            // subs whose name is an alias
	as      map[rpc.As]int // in how many ways assignments are subscribed
	making  uint64         // seq of the view that is being made; 0 = none is
	came    []subKey       // subscribed in the meantime
	asked   askedServices  // subs by service, from the first view on

	sharing sharing
}

// subKey is an assignment as some clients get it.
type subKey struct {
	name string // as they ask for it
	as   rpc.As
}

// services returns whose assignment it is: the service, and the one that its name is an
// alias of, "" for none. The set tells which of them.
func (k subKey) services() (service, alias string) {
	service = resource.ServiceOf(resource.Endpoints, k.name)
	return service, resource.AliasOf(service)
}

func newLocalityGroup(l isobar.Locality, appeared func(), names *nameBudget) *localityGroup {
	return &localityGroup{
		locality: l, appeared: appeared, names: names, changed: make(chan struct{}),
		subs: map[subKey]*subscription{}, wanted: map[string]int{}, as: map[rpc.As]int{},
	}
}

// update brings the group to a set and returns its view, which streams have to
// follow. What is subscribed is encoded here, once for all of them.
func (g *localityGroup) update(set *view.Set) *view.View {
	g.updating.Lock()
	defer g.updating.Unlock()
	g.mu.Lock()
	old := g.view
	g.mu.Unlock()
	if old != nil && old.Set().Seq() >= set.Seq() {
		set = old.Set() // a later one got here first
	}
	if old != nil && old.Set() == set {
		return old
	}
	g.begin(set)
	view := set.View(g.locality, old, g.subscribed)
	view.Appear(g.appearing(old, view))
	keys := g.concerned(view, old)
	for _, key := range keys { // outside the lock, so that nobody waits for it but who needs it
		view.LookupAs(key.as, resource.Endpoints, key.name)
	}
	g.replace(view, keys)
	return view
}

// appearing lists the names that are subscribed of services that a view has and the one before had not.
func (g *localityGroup) appearing(before, now *view.View) []string {
	if before == nil || before.Set().SameServices(now.Set()) {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []string
	for key := range g.subs {
		if before.Gone(key.name) && !now.Gone(key.name) {
			out = append(out, key.name)
		}
	}
	return out
}

// begin notes that a view is being made: what is subscribed from now on may be
// missing among what it says has changed.
func (g *localityGroup) begin(set *view.Set) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.making = set.Seq()
}

// concerned lists what is subscribed of which a view may give something else than
// the one before, in no order.
func (g *localityGroup) concerned(view, before *view.View) []subKey {
	g.mu.Lock()
	defer g.mu.Unlock()
	var names []string
	known := false
	if before != nil {
		names, known = view.Changed(before.Set().Seq(), resource.Endpoints)
	}
	if !known {
		return slices.AppendSeq(make([]subKey, 0, len(g.subs)), maps.Keys(g.subs))
	}
	var out []subKey
	for _, name := range names {
		for as := range g.as {
			if key := (subKey{name, as}); g.subs[key] != nil {
				out = append(out, key)
			}
		}
	}
	return out
}

// replace publishes a view, which differs for these keys. What was subscribed in
// the meantime began with the view before.
func (g *localityGroup) replace(view *view.View, keys []subKey) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.view = view
	g.asked.at(view.Set(), g.subs)
	close(g.changed)
	g.changed = make(chan struct{})
	for _, key := range slices.Concat(keys, g.came) {
		if sub := g.subs[key]; sub != nil {
			sub.publish(versionOf(view, key), now)
		}
	}
	g.making, g.came = 0, nil
}

// followers appends the group's streams, in no order.
func (g *localityGroup) followers(streams []*stream) []*stream {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append(streams, g.streams...)
}

func versionOf(view *view.View, key subKey) string {
	if r := view.LookupAs(key.as, resource.Endpoints, key.name); r != nil {
		return r.Steers()
	}
	return ""
}

func (g *localityGroup) subscribed(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wants(name)
}

// asksFor reports whether any client subscribes to the assignment of a service, by whatever name.
// Subscriptions by an alias count even if a service has that name.
func (g *localityGroup) asksFor(service string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wanted[service] > 0
}

// wants reports whether any client subscribes to an assignment, in whatever API version. The lock is
// held.
func (g *localityGroup) wants(name string) bool {
	for as := range g.as {
		if g.subs[subKey{name, as}] != nil {
			return true
		}
	}
	return false
}

// add makes st follow the group and returns the view to start from.
func (g *localityGroup) add(st *stream) *view.View {
	g.mu.Lock()
	defer g.mu.Unlock()
	st.place = len(g.streams)
	g.streams = append(g.streams, st)
	return g.view
}

// current returns the view, and a channel that closes when there is a newer one.
func (g *localityGroup) current() (*view.View, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.view, g.changed
}

func (g *localityGroup) remove(st *stream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := len(g.streams) - 1
	g.streams[st.place] = g.streams[last]
	g.streams[st.place].place = st.place
	g.streams[last] = nil
	g.streams = g.streams[:last]
}

// subscribe tells up to which view changes of the assignment may not be listed.
func (g *localityGroup) subscribe(key subKey, a *nameAccount) (seq uint64) {
	first, seq := g.count(key, a)
	if first {
		g.appeared()
	}
	return seq
}

// count notes one more subscriber and reports whether it is the first.
func (g *localityGroup) count(key subKey, a *nameAccount) (first bool, seq uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.enter(key, a), g.unlisted()
}

// unlisted is up to which view changes of what is subscribed to now may not be
// listed. The lock is held.
func (g *localityGroup) unlisted() uint64 { return max(g.making, g.view.Set().Seq()) }

// subscribeAll is subscribe for all names in the list of a watch, unless may refuses.
func (g *localityGroup) subscribeAll(w *watch, a *nameAccount, may growth) (seq uint64, err error) {
	g.mu.Lock()
	if err := may(); err != nil { // asked while no other stream of the group can grow
		g.mu.Unlock()
		return 0, err
	}
	first := false
	for _, n := range w.list.names {
		first = g.enter(w.key(n), a) || first
	}
	seq = g.unlisted()
	g.mu.Unlock()
	if first {
		g.appeared()
	}
	return seq, nil
}

// subscription returns what is subscribed to; nil if it is not.
func (g *localityGroup) subscription(key subKey) *subscription {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.subs[key]
}

// enter counts a subscriber, and reports whether it is the first. The lock is held.
func (g *localityGroup) enter(key subKey, a *nameAccount) (first bool) {
	sub := g.subs[key]
	if first = sub == nil; first {
		sub = &subscription{current: versionOf(g.view, key), account: a}
		g.subs[key] = sub
		g.asked.enter(key, sub, g.wanted[g.asked.set.ServiceOf(key.name)] > 0)
		if g.making > 0 {
			g.came = append(g.came, key)
		}
		g.as[key.as]++
		g.names.add(a, key.size())
		g.want(key, 1)
	}
	sub.streams++
	return first
}

// want counts subs by service: n more. The lock is held.
func (g *localityGroup) want(key subKey, n int) {
	service, alias := key.services()
	g.wanted[service] += n
	if g.wanted[service] == 0 {
		delete(g.wanted, service)
	}
	if alias == "" {
		return
	}
	g.aliases += n
	g.wanted[alias] += n
	if g.wanted[alias] == 0 {
		delete(g.wanted, alias)
	}
}

// unsubscribe is told the version that the stream acknowledged last.
func (g *localityGroup) unsubscribe(key subKey, acked string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	sub := g.subs[key]
	if sub == nil {
		return
	}
	sub.streams--
	if sub.streams == 0 {
		delete(g.subs, key)
		g.asked.leave(key, sub)
		if g.as[key.as]--; g.as[key.as] == 0 {
			delete(g.as, key.as)
		}
		g.names.add(sub.account, -key.size())
		g.want(key, -1)
		if !g.wants(key.name) {
			g.view.Forget(key.name)
		}
		return
	}
	sub.move(acked, "")
	sub.noteConverged(time.Now())
}

// awaitACK says of a subscriber of assignments whether to wait until it says that it
// has what is published. Of one that asks once, and is not heard of again, that
// would never come.
func (g *localityGroup) awaitACK(keys []subKey, yes bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for _, k := range keys {
		sub := g.subs[k]
		if sub == nil {
			continue
		}
		if yes {
			sub.mute--
			continue
		}
		sub.mute++
		sub.noteConverged(now)
	}
}

// acknowledge notes that a stream now holds what it was sent.
func (g *localityGroup) acknowledge(as rpc.As, subs []*sub, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range subs {
		if s.sent == nil {
			continue
		}
		if sub := g.subs[subKey{s.name, as}]; sub != nil {
			sub.move(s.acked, s.sent.Steers())
			sub.noteConverged(now)
		}
		s.acked = s.sent.Steers()
	}
}

// acknowledgeShared is acknowledge for a response that many streams are sent.
func (g *localityGroup) acknowledgeShared(as rpc.As, a *shared, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, i := range a.items {
		sub := i.sub
		if sub == nil || sub.streams == 0 { // all left, and others came
			if sub = g.subs[subKey{i.name, as}]; sub == nil {
				continue
			}
		}
		from := ""
		if i.before != nil {
			from = i.before.Steers()
		}
		sub.move(from, i.now.Steers())
		sub.noteConverged(now)
	}
}

// described returns how many subscriptions describe appends, unless clients come or go meanwhile.
func (g *localityGroup) described(unknown int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked.known + min(unknown, len(g.asked.listed)-g.asked.known)
}

// describe appends the group's subscriptions by service, at most so many to services that do not
// exist. The clients of a service have what is published, which is the set, when those of every
// form have it.
func (g *localityGroup) describe(set *view.Set, unknown int, out []load.Subscription) []load.Subscription {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.asked.list() {
		if !a.known {
			if unknown == 0 {
				continue
			}
			unknown--
		}
		d := a.describe(g.locality)
		if !set.Keeps(a.service, g.view) {
			d.Acked, d.AckedAt = 0, time.Time{}
		}
		out = append(out, d)
	}
	return out
}

// missing returns how many subscriptions there are to names of no service.
func (g *localityGroup) missing() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked.missing
}

// subscription is an assignment with those who should have it.
type subscription struct {
	streams int
	mute    int            // of them, those that never said what they have
	current string         // version of what is published; "" = there is none
	acked   []ackedVersion // that the streams acknowledged last, about in the order of their publication
	ackedAt time.Time      // when enough streams had the current version; zero before
	account *nameAccount   // of the first stream
	place   int            // among those to the same service, from 1; 0 = the index leaves it out
}

// ackedVersion is a version with the number of streams that acknowledged it last. There are
// few of a subscription, unless clients don't answer.
type ackedVersion struct {
	version string
	streams int
}

// at returns how many streams acknowledged a version last.
func (s *subscription) at(version string) int {
	if i := s.indexOf(version); i >= 0 {
		return s.acked[i].streams
	}
	return 0
}

// indexOf returns where a version is in acked, -1 if nowhere. Most streams have one of the last.
func (s *subscription) indexOf(version string) int {
	i := len(s.acked) - 1
	for i >= 0 && s.acked[i].version != version {
		i--
	}
	return i
}

// publish records new content. The same content again changes nothing.
func (s *subscription) publish(version string, now time.Time) {
	if version == s.current {
		return
	}
	s.current, s.ackedAt = version, time.Time{}
	s.noteConverged(now) // some may have it from before
}

// move counts a stream at another version than before.
func (s *subscription) move(from, to string) {
	if from == to {
		return
	}
	if from != "" {
		if i := s.indexOf(from); i >= 0 {
			if s.acked[i].streams--; s.acked[i].streams == 0 {
				s.acked = slices.Delete(s.acked, i, i+1)
			}
		}
	}
	if to == "" {
		return
	}
	if i := s.indexOf(to); i >= 0 {
		s.acked[i].streams++
		return
	}
	s.acked = append(s.acked, ackedVersion{to, 1})
}

// noteConverged notes when 95% of the streams that acknowledge have the current
// content. The note stays until the content changes: a stream that joins later begins
// with the current content anyway.
func (s *subscription) noteConverged(now time.Time) {
	speak := s.streams - s.mute
	if s.current == "" || !s.ackedAt.IsZero() || speak == 0 {
		return
	}
	if s.at(s.current)*100 >= speak*95 {
		s.ackedAt = now
	}
}
