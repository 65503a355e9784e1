package dns

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/keep"
)

const (
	// maxNegativeTTL is how long it counts at most that a name has no records: who
	// adds them waits no longer.
	maxNegativeTTL = 30 * time.Second
	// maxEndpoints bounds the endpoints of one service.
	maxEndpoints = 30_000
)

// table is what is known of every configured name and service. It is guarded by
// the provider's lock.
type table struct {
	names    []*name    // sorted by lookup, each once however many services use it
	services []*service // sorted by name
}

// name is one lookup.
type name struct {
	Lookup

	tried     bool              // an answer or a failure has come in this process
	known     bool              // it has had endpoints
	endpoints []isobar.Endpoint // in force; never written again
	at        time.Time         // when they were resolved; zero = not known
	last      result            // the last that was no failure
	answered  bool              // the last attempt was no failure

	due      time.Time // when to ask
	asking   bool      // it is being asked
	failures int       // in a row
	failure  string    // the last one; empty = there is none now
	// emptySince is since when answers say that there is nothing, while endpoints
	// are in force; zero = they do not.
	emptySince time.Time
	// unconfirmed is since when the endpoints are not as an answer says that still
	// counts; zero = they are.
	unconfirmed time.Time
}

// service is one service with its names.
type service struct {
	Service

	names       [][]*name                // by locality
	handed      bool                     // the registry has all that is known
	leftOut     int                      // endpoints that are in another locality too, or too many
	reason      string                   // of the first of them
	refused     string                   // why the registry refused it; empty = it did not
	inForce     []isobar.ServiceLocality // what the registry took last
	taken       bool                     // it has taken something
	unconfirmed time.Time
}

func compareLookups(a, b Lookup) int {
	if n := strings.Compare(a.Name, b.Name); n != 0 {
		return n
	}
	if a.SRV != b.SRV {
		if b.SRV {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Family, b.Family))
}

// find returns the entry of a lookup; nil for none.
func (t *table) find(l Lookup) *name {
	i, found := slices.BinarySearchFunc(t.names, l, func(n *name, l Lookup) int { return compareLookups(n.Lookup, l) })
	if !found {
		return nil
	}
	return t.names[i]
}

// configured returns the table of another configuration. What is known of a name
// stays. A locality of whose names nothing is known begins with the endpoints
// that seed gives for its service, until its names are answered for.
func (t *table) configured(cfg *Config, seed func(service string) []isobar.ServiceLocality, now time.Time) table {
	if cfg == nil {
		return table{}
	}
	var next table
	entries := map[Lookup]*name{}
	entry := func(l Lookup) *name {
		n := entries[l]
		if n == nil {
			n = &name{Lookup: l, due: now}
			if old := t.find(l); old != nil {
				carried := *old
				n = &carried
			}
			entries[l] = n
			next.names = append(next.names, n)
		}
		return n
	}
	before := make(map[string]*service, len(t.services))
	for _, s := range t.services {
		before[s.Settings.Name] = s
	}
	for i := range cfg.Services {
		s := &service{Service: cfg.Services[i]}
		if old := before[s.Settings.Name]; old != nil {
			s.handed, s.refused, s.inForce, s.taken = old.handed, old.refused, old.inForce, old.taken
		}
		for _, lookups := range s.Lookups {
			names := make([]*name, 0, len(lookups))
			for _, l := range lookups {
				names = append(names, entry(l))
			}
			s.names = append(s.names, names)
		}
		s.begin(seed, now)
		next.services = append(next.services, s)
	}
	slices.SortFunc(next.names, func(a, b *name) int { return compareLookups(a.Lookup, b.Lookup) })
	slices.SortFunc(next.services, func(a, b *service) int { return strings.Compare(a.Settings.Name, b.Settings.Name) })
	return next
}

// begin gives the endpoints of another provider, or of other names, to the first
// name of each locality of which nothing is known.
func (s *service) begin(seed func(service string) []isobar.ServiceLocality, now time.Time) {
	var before []isobar.ServiceLocality
	asked := false
	for i, names := range s.names {
		if len(names) == 0 || slices.ContainsFunc(names, func(n *name) bool { return n.known || n.answered }) {
			continue
		}
		if !asked {
			before, asked = seed(s.Settings.Name), true
		}
		where := s.Settings.Localities[i].Locality
		j := slices.IndexFunc(before, func(l isobar.ServiceLocality) bool { return l.Locality == where })
		if j >= 0 && len(before[j].Endpoints) > 0 {
			n := names[0]
			n.known, n.endpoints, n.at = true, before[j].Endpoints, now
		}
	}
}

// known reports whether endpoints of some name are known.
func (s *service) known() bool {
	return s.any(func(n *name) bool { return n.known })
}

// complete reports whether every name was answered for, or asked in vain.
func (s *service) complete() bool {
	return !s.any(func(n *name) bool { return !n.tried })
}

func (s *service) any(is func(*name) bool) bool {
	return slices.ContainsFunc(s.names, func(names []*name) bool { return slices.ContainsFunc(names, is) })
}

// compose joins what is resolved with what is configured. Localities of whose
// names nothing was ever known are not in it.
func (s *service) compose() isobar.Service {
	out := s.Settings
	out.Localities = nil
	s.leftOut, s.reason = 0, ""
	seen := map[string]bool{}
	for i, names := range s.names {
		l := s.Settings.Localities[i]
		l.Endpoints = nil
		known := false
		for _, n := range names {
			known = known || n.known
			l.Endpoints = s.join(l.Endpoints, n, seen)
		}
		if known {
			out.Localities = append(out.Localities, l)
		}
	}
	return out
}

// join adds the endpoints of a name that the service does not have yet.
func (s *service) join(to []isobar.Endpoint, n *name, seen map[string]bool) []isobar.Endpoint {
	for i := range n.endpoints {
		e := &n.endpoints[i]
		var reason string
		switch {
		case seen[e.Address]:
			reason = e.Address + " of " + printable(n.Name) + " belongs to another name of the service, too"
		case len(seen) == maxEndpoints:
			reason = "more endpoints than a service may have"
		default:
			seen[e.Address] = true
			to = append(to, *e)
			continue
		}
		if s.leftOut == 0 {
			s.reason = reason
		}
		s.leftOut++
	}
	return to
}

// listed returns the services that are to be in force, and those of which no
// endpoints are known. A service that the registry has refused keeps what it had:
// it must not refuse another configuration.
func (t *table) listed() (listed, unknown []isobar.Service) {
	for _, s := range t.services {
		switch {
		case s.refused != "" && s.taken:
			listed = append(listed, s.kept())
		case s.refused == "" && s.known():
			listed = append(listed, s.compose())
		default:
			settings := s.Settings
			settings.Localities = nil
			unknown = append(unknown, settings)
		}
	}
	return listed, unknown
}

// kept joins what the registry took last with what is configured.
func (s *service) kept() isobar.Service {
	out := s.Settings
	out.Localities = nil
	for i := range s.Settings.Localities {
		l := s.Settings.Localities[i]
		if j := slices.IndexFunc(s.inForce, func(o isobar.ServiceLocality) bool { return o.Locality == l.Locality }); j >= 0 {
			l.Endpoints = s.inForce[j].Endpoints
			out.Localities = append(out.Localities, l)
		}
	}
	return out
}

// took notes what the registry has taken: what listed gave.
func (t *table) took(listed []isobar.Service) {
	taken := make(map[string]*isobar.Service, len(listed))
	for i := range listed {
		taken[listed[i].Name] = &listed[i]
	}
	for _, s := range t.services {
		if one := taken[s.Settings.Name]; one != nil && s.refused == "" {
			s.handed, s.taken, s.inForce = true, true, one.Localities
		}
	}
}

// answered reports whether something is known of every service, or all of its
// names were asked for.
func (t *table) answered() bool {
	return !slices.ContainsFunc(t.services, func(s *service) bool { return !s.known() && !s.complete() })
}

// take puts what a lookup gave into its entry, and reports whether that changes
// what is to be in force.
func (n *name) take(r *result, minTTL time.Duration, now time.Time) (changed bool) {
	n.tried, n.asking = true, false
	if r.err != nil {
		n.failed(r.err, now)
		return false
	}
	n.failures, n.failure, n.answered = 0, "", true
	n.last = *r
	if len(r.endpoints) == 0 {
		n.due = now.Add(jittered(min(max(r.ttl, minTTL), max(maxNegativeTTL, minTTL))))
		if len(n.endpoints) > 0 && n.emptySince.IsZero() {
			n.emptySince = now
		}
		return false
	}
	n.due = now.Add(jittered(min(max(r.ttl, minTTL), maxTTL)))
	if r.partly != nil {
		n.failed(r.partly, now)
	}
	changed = !n.known || !slices.EqualFunc(n.endpoints, r.endpoints, sameEndpoint)
	n.known, n.at, n.emptySince = true, now, time.Time{}
	if changed {
		n.endpoints = r.endpoints
	}
	return changed
}

// failed notes that nobody answered, and asks again soon.
func (n *name) failed(err error, now time.Time) {
	n.failures++
	n.failure, n.answered = keep.Short(err.Error()), false
	n.due = now.Add(keep.Backoff(n.failures))
}

// jittered is a little later, up to a twentieth and a second, so that not all
// names are asked for at once.
func jittered(d time.Duration) time.Duration {
	return d + rand.N(min(d/20, time.Second)+1) //nolint:gosec // jitter is no secret
}

// sameEndpoint compares what DNS says of endpoints. Those of another provider have
// more, and are replaced.
func sameEndpoint(a, b isobar.Endpoint) bool { return a == b }

// release believes that names have no endpoints of which answers have said so for
// long enough, and returns them. While more than half of all services (of at least
// two) would lose all that they have, the names of those are not believed. With
// hold 0 all are.
func (t *table) release(hold time.Duration, now time.Time) (emptied []*name) {
	held := t.held(hold)
	for _, n := range t.names {
		if n.emptySince.IsZero() || now.Sub(n.emptySince) < hold || held[n] {
			continue
		}
		n.emptySince, n.endpoints, n.at = time.Time{}, nil, now
		emptied = append(emptied, n)
	}
	return emptied
}

// nextRelease tells when release has something to do; false = never, as things
// stand.
func (t *table) nextRelease(hold time.Duration) (at time.Time, ok bool) {
	held := t.held(hold)
	for _, n := range t.names {
		if due := n.emptySince.Add(hold); !n.emptySince.IsZero() && !held[n] && (!ok || due.Before(at)) {
			at, ok = due, true
		}
	}
	return at, ok
}

// held lists the names that are not believed to be empty, because too many
// services would be.
func (t *table) held(hold time.Duration) map[*name]bool {
	if hold == 0 || !slices.ContainsFunc(t.names, func(n *name) bool { return !n.emptySince.IsZero() }) {
		return nil
	}
	all := 0
	var losing []*service
	for _, s := range t.services {
		if s.any(func(n *name) bool { return len(n.endpoints) > 0 }) {
			all++
			if !s.any(func(n *name) bool { return len(n.endpoints) > 0 && n.emptySince.IsZero() }) {
				losing = append(losing, s)
			}
		}
	}
	if !keep.TooMany(len(losing), all) {
		return nil
	}
	out := map[*name]bool{}
	for _, s := range losing {
		for _, names := range s.names {
			for _, n := range names {
				out[n] = true
			}
		}
	}
	return out
}

// using lists the services that have one of these names and may be handed over:
// those of which something is known, once all of their names were asked for.
func (t *table) using(changed map[*name]bool) []*service {
	var out []*service
	for _, s := range t.services {
		switch {
		case !s.known() || !s.complete():
		case !s.handed || s.any(func(n *name) bool { return changed[n] }):
			out = append(out, s)
		}
	}
	return out
}

// noteUnconfirmed notes since when the endpoints in force differ from DNS.
func (t *table) noteUnconfirmed(now time.Time) {
	for _, n := range t.names {
		since(&n.unconfirmed, n.known && (!n.answered || !n.emptySince.IsZero()), now)
	}
	for _, s := range t.services {
		since(&s.unconfirmed, s.refused != "" || s.any(func(n *name) bool { return !n.unconfirmed.IsZero() }), now)
	}
}

// since keeps the time at which something became true.
func since(at *time.Time, is bool, now time.Time) {
	switch {
	case !is:
		*at = time.Time{}
	case at.IsZero():
		*at = now
	}
}
