package xds

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
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
	mu       sync.Mutex
	view     *view.View
	changed  chan struct{} // closed and replaced when view changes
	streams  map[*stream]struct{}
	subs     map[subKey]*subscription
	versions map[string]int // in how many a name is subscribed
	// wanted counts the subs of each service, which may have several names. A sub whose
	// name is an alias counts for both services that the name may stand for.
	wanted  map[string]int
	aliases int            // subs whose name is an alias
	as      map[rpc.As]int // in how many ways assignments are subscribed
	making  uint64         // seq of the view that is being made; 0 = none is
	came    []subKey       // subscribed in the meantime
	asked   []asked        // of subs, by service; nil after these have changed

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
		streams: map[*stream]struct{}{}, subs: map[subKey]*subscription{}, versions: map[string]int{}, wanted: map[string]int{}, as: map[rpc.As]int{},
	}
}

// update brings the group to a set and gives its view, which streams have to
// follow. What is subscribed is encoded here, once for all of them.
func (z *localityGroup) update(set *view.Set) *view.View {
	z.updating.Lock()
	defer z.updating.Unlock()
	z.mu.Lock()
	old := z.view
	z.mu.Unlock()
	if old != nil && old.Set().Seq() >= set.Seq() {
		set = old.Set() // a later one got here first
	}
	if old != nil && old.Set() == set {
		return old
	}
	z.begin(set)
	view := set.View(z.locality, old, z.subscribed)
	keys := z.concerned(view, old)
	for _, key := range keys { // outside the lock, so that nobody waits for it but who needs it
		view.LookupAs(key.as, resource.Endpoints, key.name)
	}
	z.replace(view, keys)
	return view
}

// begin notes that a view is being made: what is subscribed from now on may be
// missing among what it says has changed.
func (z *localityGroup) begin(set *view.Set) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.making = set.Seq()
}

// concerned lists what is subscribed of which a view may give something else than
// the one before, in no order.
func (z *localityGroup) concerned(view, before *view.View) []subKey {
	z.mu.Lock()
	defer z.mu.Unlock()
	var names []string
	known := false
	if before != nil {
		names, known = view.Changed(before.Set().Seq(), resource.Endpoints)
	}
	if !known {
		return slices.AppendSeq(make([]subKey, 0, len(z.subs)), maps.Keys(z.subs))
	}
	var out []subKey
	for _, name := range names {
		for as := range z.as {
			if key := (subKey{name, as}); z.subs[key] != nil {
				out = append(out, key)
			}
		}
	}
	return out
}

// replace publishes a view, which differs for these keys. What was subscribed in
// the meantime began with the view before.
func (z *localityGroup) replace(view *view.View, keys []subKey) {
	now := time.Now()
	z.mu.Lock()
	defer z.mu.Unlock()
	z.view = view
	if z.aliases > 0 {
		z.asked = nil // a name may stand for another service than before
	}
	close(z.changed)
	z.changed = make(chan struct{})
	for _, key := range slices.Concat(keys, z.came) {
		if sub := z.subs[key]; sub != nil {
			sub.publish(versionOf(view, key), now)
		}
	}
	z.making, z.came = 0, nil
}

// followers appends the group's streams, in no order.
func (z *localityGroup) followers(streams []*stream) []*stream {
	z.mu.Lock()
	defer z.mu.Unlock()
	for st := range z.streams {
		streams = append(streams, st)
	}
	return streams
}

func versionOf(view *view.View, key subKey) string {
	if r := view.LookupAs(key.as, resource.Endpoints, key.name); r != nil {
		return r.Steers()
	}
	return ""
}

func (z *localityGroup) subscribed(name string) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.wants(name)
}

// asksFor reports whether anybody subscribes to the assignment of a service, by
// whatever name. Those who ask by an alias count even if a service has that name.
func (z *localityGroup) asksFor(service string) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.wanted[service] > 0
}

// wants tells whether anybody subscribes to an assignment, in whatever form. The
// lock is held.
func (z *localityGroup) wants(name string) bool { return z.versions[name] > 0 }

// add makes st follow the group and gives the view to start from.
func (z *localityGroup) add(st *stream) *view.View {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.streams[st] = struct{}{}
	return z.view
}

// current gives the view, and a channel that closes when there is a newer one.
func (z *localityGroup) current() (*view.View, <-chan struct{}) {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.view, z.changed
}

func (z *localityGroup) remove(st *stream) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.streams, st)
}

// subscribe tells up to which view changes of the assignment may not be listed.
func (z *localityGroup) subscribe(key subKey, a *nameAccount) (seq uint64) {
	first, seq := z.count(key, a)
	if first {
		z.appeared()
	}
	return seq
}

// count notes one more subscriber and tells whether it is the first.
func (z *localityGroup) count(key subKey, a *nameAccount) (first bool, seq uint64) {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.enter(key, a), z.unlisted()
}

// unlisted is up to which view changes of what is subscribed to now may not be
// listed. The lock is held.
func (z *localityGroup) unlisted() uint64 { return max(z.making, z.view.Set().Seq()) }

// subscribeAll is subscribe for all names in the list of a watch, unless may refuses.
func (z *localityGroup) subscribeAll(w *watch, a *nameAccount, may growth) (seq uint64, err error) {
	z.mu.Lock()
	if err := may(); err != nil { // asked while no other stream of the group can grow
		z.mu.Unlock()
		return 0, err
	}
	first := false
	for _, n := range w.list.names {
		first = z.enter(w.key(n), a) || first
	}
	seq = z.unlisted()
	z.mu.Unlock()
	if first {
		z.appeared()
	}
	return seq, nil
}

// subscription gives what is subscribed to; nil if it is not.
func (z *localityGroup) subscription(key subKey) *subscription {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.subs[key]
}

// enter counts a subscriber, and tells whether it is the first. The lock is held.
func (z *localityGroup) enter(key subKey, a *nameAccount) (first bool) {
	sub := z.subs[key]
	if first = sub == nil; first {
		sub = &subscription{current: versionOf(z.view, key), account: a}
		z.subs[key], z.asked = sub, nil
		if z.making > 0 {
			z.came = append(z.came, key)
		}
		z.as[key.as]++
		z.names.add(a, key.size())
		z.versions[key.name]++
		z.want(key, 1)
	}
	sub.streams++
	return first
}

// want counts subs by service: n more. The lock is held.
func (z *localityGroup) want(key subKey, n int) {
	service, alias := key.services()
	z.wanted[service] += n
	if z.wanted[service] == 0 {
		delete(z.wanted, service)
	}
	if alias == "" {
		return
	}
	z.aliases += n
	z.wanted[alias] += n
	if z.wanted[alias] == 0 {
		delete(z.wanted, alias)
	}
}

// unsubscribe is told the version that the stream acknowledged last.
func (z *localityGroup) unsubscribe(key subKey, acked string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	sub := z.subs[key]
	if sub == nil {
		return
	}
	sub.streams--
	if sub.streams == 0 {
		delete(z.subs, key)
		z.asked = nil
		if z.as[key.as]--; z.as[key.as] == 0 {
			delete(z.as, key.as)
		}
		z.names.add(sub.account, -key.size())
		z.want(key, -1)
		if z.versions[key.name]--; !z.wants(key.name) {
			delete(z.versions, key.name)
			z.view.Forget(key.name)
		}
		return
	}
	sub.move(acked, "")
	sub.noteConverged(time.Now())
}

// awaitACK says of a subscriber of assignments whether to wait until it says that it
// has what is published. Of one that asks once, and is not heard of again, that
// would never come.
func (z *localityGroup) awaitACK(keys []subKey, yes bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	now := time.Now()
	for _, k := range keys {
		sub := z.subs[k]
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
func (z *localityGroup) acknowledge(as rpc.As, subs []*sub, now time.Time) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, s := range subs {
		if s.sent == nil {
			continue
		}
		if sub := z.subs[subKey{s.name, as}]; sub != nil {
			sub.move(s.acked, s.sent.Steers())
			sub.noteConverged(now)
		}
		s.acked = s.sent.Steers()
	}
}

// acknowledgeShared is acknowledge for a response that many streams are sent.
func (z *localityGroup) acknowledgeShared(as rpc.As, a *shared, now time.Time) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, i := range a.items {
		sub := i.sub
		if sub == nil || sub.streams == 0 { // all left, and others came
			if sub = z.subs[subKey{i.name, as}]; sub == nil {
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

// asked is a service that streams of a group ask for, with the subscriptions to
// its assignment in all forms and under all names.
type asked struct {
	service string
	subs    []*subscription
}

// services lists what the group's streams ask for, by service. The lock is held.
// It is asked for with every plan and changes when clients come and go.
func (z *localityGroup) services() []asked {
	if z.asked != nil {
		return z.asked
	}
	out := make([]asked, 0, len(z.subs))
	for key, sub := range z.subs {
		if service := z.view.Set().ServiceOf(key.name); service != "" { // others stand for nothing
			out = append(out, asked{service, []*subscription{sub}})
		}
	}
	slices.SortFunc(out, func(a, b asked) int { return strings.Compare(a.service, b.service) })
	joined := out[:0]
	for _, a := range out {
		if n := len(joined); n > 0 && joined[n-1].service == a.service {
			joined[n-1].subs = append(joined[n-1].subs, a.subs...)
			continue
		}
		joined = append(joined, a)
	}
	z.asked = joined
	return joined
}

// describe appends the group's subscriptions by service. The clients of a service
// have what is published, which is the set, when those of every form have it.
func (z *localityGroup) describe(set *view.Set, out []Subscription) []Subscription {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, a := range z.services() {
		d := Subscription{Locality: z.locality, Service: a.service, AckedAt: a.subs[0].ackedAt}
		for _, sub := range a.subs {
			d.Streams += sub.streams
			if sub.current != "" {
				d.Acked += sub.acked[sub.current]
			}
			switch {
			case sub.ackedAt.IsZero() || d.AckedAt.IsZero():
				d.AckedAt = time.Time{}
			case sub.ackedAt.After(d.AckedAt):
				d.AckedAt = sub.ackedAt
			}
		}
		if !set.Keeps(a.service, z.view) {
			d.Acked, d.AckedAt = 0, time.Time{}
		}
		out = append(out, d)
	}
	return out
}

// subscription is an assignment with those who should have it.
type subscription struct {
	streams int
	mute    int            // of them, those that never said what they have
	current string         // version of what is published; "" = there is none
	acked   map[string]int // streams by the version that they acknowledged last; nil = none did
	ackedAt time.Time      // when enough streams had the current version; zero before
	account *nameAccount   // of the first stream
}

// publish takes note of new content. The same content again changes nothing.
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
		if s.acked[from]--; s.acked[from] <= 0 {
			delete(s.acked, from)
		}
	}
	if to != "" {
		if s.acked == nil {
			s.acked = map[string]int{}
		}
		s.acked[to]++
	}
}

// noteConverged notes when 95% of the streams that acknowledge have the current
// content. The note stays until the content changes: a stream that joins later begins
// with the current content anyway.
func (s *subscription) noteConverged(now time.Time) {
	speak := s.streams - s.mute
	if s.current == "" || !s.ackedAt.IsZero() || speak == 0 {
		return
	}
	if s.acked[s.current]*100 >= speak*95 {
		s.ackedAt = now
	}
}
