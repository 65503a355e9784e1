package hds

import (
	"crypto/sha256"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds/convert"
	"github.com/isobar-xds/isobar/internal/health"
)

// assignments says what all checkers probe: one call of Designate.
type assignments struct {
	topology *isobar.Topology
	interval time.Duration
	keys     map[string][]health.Key // by checker

	mu    sync.Mutex
	found map[string]*site // nil where there is none to probe
}

// site is a service with the places of its endpoints.
type site struct {
	service *isobar.Service
	needs   health.Protocols
	sockets string           // see [health.Sockets]
	places  map[string]place // by address
}

type place struct{ locality, endpoint int }

// newAssignments returns assignments that follow those before: services that are the same
// ones keep their sites.
func newAssignments(t *isobar.Topology, designations []health.Designation, interval time.Duration, before map[string]*site) *assignments {
	o := &assignments{topology: t, interval: interval, keys: make(map[string][]health.Key, len(designations)), found: make(map[string]*site, len(before))}
	for _, d := range designations {
		o.keys[d.Checker] = d.Endpoints
	}
	for name, s := range before {
		if svc, ok := t.Service(name); ok && s != nil && health.SameProbes(svc, s.service) {
			o.found[name] = s
		}
	}
	return o
}

// sites returns the services found so far.
func (o *assignments) sites() map[string]*site {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.found)
}

// services returns what a checker shall probe, the endpoints of one service after
// those of the other.
func (o *assignments) services(id string) iter.Seq[[]health.Key] {
	return func(yield func([]health.Key) bool) {
		for keys := o.keys[id]; len(keys) > 0; {
			n := 1
			for n < len(keys) && keys[n].Service == keys[0].Service {
				n++
			}
			if !yield(keys[:n]) {
				return
			}
			keys = keys[n:]
		}
	}
}

// knows reports whether a checker was thought of when these assignments were made.
func (o *assignments) knows(id string) bool {
	_, ok := o.keys[id]
	return ok
}

// site finds a service; nil where there is none to probe.
func (o *assignments) site(name string) *site {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s, ok := o.found[name]; ok {
		return s
	}
	o.found[name] = nil
	svc, ok := o.topology.Service(name)
	if !ok || len(svc.HealthChecks) == 0 {
		return nil
	}
	own := *svc // the topology is not kept for it
	s := &site{service: &own, needs: health.Needs(svc), sockets: health.Sockets(svc), places: map[string]place{}}
	for i := range svc.Localities {
		for j := range svc.Localities[i].Endpoints {
			s.places[svc.Localities[i].Endpoints[j].Address] = place{i, j}
		}
	}
	o.found[name] = s
	return s
}

// altered reports whether an endpoint is in another locality, or probed elsewhere or
// with other TLS settings, than when a slot was made for it. Of those that are gone it does not.
func (o *assignments) altered(s *slot) bool {
	site := o.site(s.key.Service)
	if site == nil {
		return false
	}
	p, ok := site.places[s.key.Address]
	if !ok {
		return false
	}
	l := &site.service.Localities[p.locality]
	return l.Locality != s.locality || checkOf(&l.Endpoints[p.endpoint]) != s.check || site.sockets != s.sockets
}

// checkOf is what an endpoint says of its probes; the zero value for nothing.
func checkOf(e *isobar.Endpoint) isobar.EndpointCheck {
	if e.Check == nil {
		return isobar.EndpointCheck{}
	}
	return *e.Check
}

// work is what one checker shall probe.
type work struct {
	clusters []*healthv3.ClusterHealthCheck
	slots    []slot
	unfit    int   // services that need what the checker can't do, or of whose endpoints one does
	invalid  int   // services that must not be sent
	err      error // the last reason of those
}

// work translates the designation of a checker.
func (o *assignments) work(id string, can health.Protocols) work {
	var w work
	for keys := range o.services(id) {
		if s := o.site(keys[0].Service); s != nil { // else it was removed since the designation was made
			w.add(s, keys, can)
		}
	}
	return w
}

// add adds the endpoints of one service.
func (w *work) add(s *site, keys []health.Key, can health.Protocols) {
	c, slots, unfit, err := s.cluster(keys, can)
	if unfit {
		w.unfit++
	}
	if err != nil {
		w.invalid++
		w.err = err
		return
	}
	if c != nil {
		w.clusters = append(w.clusters, c)
		w.slots = append(w.slots, slots...)
	}
}

// cluster is the message to a checker about a service, nil for none, and reports whether the
// checker can't probe a part of it.
func (s *site) cluster(keys []health.Key, can health.Protocols) (c *healthv3.ClusterHealthCheck, slots []slot, unfit bool, err error) {
	if !can.Has(s.needs) {
		return nil, nil, true, nil
	}
	targets, slots, unfit := s.pick(keys, can)
	if len(slots) == 0 {
		return nil, nil, unfit, nil
	}
	c, err = convert.ClusterHealthCheckOf(s.service, targets)
	return c, slots, unfit, err
}

// pick gathers the endpoints that a checker can probe by locality, in the order
// of the topology, and reports whether it had to leave others out.
func (s *site) pick(keys []health.Key, can health.Protocols) (targets []convert.ProbeTarget, slots []slot, unfit bool) {
	chosen := make([][]bool, len(s.service.Localities))
	for _, k := range keys {
		p, ok := s.places[k.Address]
		if !ok {
			continue
		}
		if chosen[p.locality] == nil {
			chosen[p.locality] = make([]bool, len(s.service.Localities[p.locality].Endpoints))
		}
		chosen[p.locality][p.endpoint] = true
	}
	for i, picked := range chosen {
		l := &s.service.Localities[i]
		t := convert.ProbeTarget{Locality: l.Locality}
		for j := range picked {
			e := &l.Endpoints[j]
			if !picked[j] || e.Check != nil && e.Check.Disabled {
				continue
			}
			if !can.Has(health.NeedsOf(e)) {
				unfit = true
				continue
			}
			t.Endpoints = append(t.Endpoints, *e)
			slots = append(slots, slot{
				key: health.Key{Service: s.service.Name, Address: e.Address}, locality: l.Locality, check: checkOf(e),
				sockets: s.sockets,
			})
		}
		if len(t.Endpoints) > 0 {
			targets = append(targets, t)
		}
	}
	return targets, slots, unfit
}

// sentWork is what a checker was told.
type sentWork struct {
	mu       sync.Mutex
	bytes    []byte                                  // the last specifier, encoded
	clusters map[string]*healthv3.ClusterHealthCheck // that were sent with endpoints, kept without
	sums     sums                                    // of the clusters in it that have endpoints
	draining map[string]drain                        // without, about to go
	basis    *basis                                  // of bytes; nil where they don't hold just that
}

// drain is a cluster that goes in two steps: at first only its endpoints are
// removed, so that the checker ends its probes, then the cluster. Envoy may
// crash when a cluster goes whose probes are running.
type drain struct {
	cluster *healthv3.ClusterHealthCheck // without endpoints
	until   time.Time
}

// drained turns clusters that are not wanted any more into draining ones and returns those that
// have to be sent, by name; again is when the next of them may go, zero for never.
func (d *sentWork) drained(wanted []*healthv3.ClusterHealthCheck, now time.Time, wait time.Duration) (out []*healthv3.ClusterHealthCheck, again time.Time) {
	want := make(map[string]bool, len(wanted))
	for _, c := range wanted {
		want[c.GetClusterName()] = true
	}
	for name, c := range d.clusters {
		if want[name] {
			continue
		}
		if d.draining == nil {
			d.draining = map[string]drain{}
		}
		d.draining[name] = drain{cluster: c, until: now.Add(wait)}
	}
	for name, dr := range d.draining {
		if want[name] || !now.Before(dr.until) {
			delete(d.draining, name)
			continue
		}
		out = append(out, dr.cluster)
		if again.IsZero() || dr.until.Before(again) {
			again = dr.until
		}
	}
	slices.SortFunc(out, func(a, b *healthv3.ClusterHealthCheck) int {
		return strings.Compare(a.GetClusterName(), b.GetClusterName())
	})
	return out, again
}

func withoutEndpoints(c *healthv3.ClusterHealthCheck) *healthv3.ClusterHealthCheck {
	return &healthv3.ClusterHealthCheck{
		ClusterName: c.GetClusterName(), HealthChecks: c.GetHealthChecks(), TransportSocketMatches: c.GetTransportSocketMatches(),
	}
}

// basis is what the specifier of a checker was worked out from. As long as it
// holds, so does the specifier: most changes concern few services, and to most
// checkers say nothing new.
type basis struct {
	can      health.Protocols
	interval time.Duration
	parts    map[string]share // by service
}

// share is the part of one service that the server assigns to a checker.
type share struct {
	site *site
	keys []health.Key
	sum  [sha256.Size]byte // of the cluster, encoded; zero if none is to be sent
}

// sums are those of clusters, by name.
type sums map[string][sha256.Size]byte

func sumsOf(told []*healthv3.ClusterHealthCheck) sums {
	out := make(sums, len(told))
	for _, c := range told {
		out[c.GetClusterName()] = sumOf(c)
	}
	return out
}

// differing lists the clusters that are new or changed, sorted.
func differing(is, was sums) (out []string) {
	for name, sum := range is {
		if before, ok := was[name]; !ok || before != sum {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func newBasis(o *assignments, id string, can health.Protocols, interval time.Duration, sums sums) *basis {
	b := &basis{can: can, interval: interval, parts: map[string]share{}}
	for keys := range o.services(id) {
		name := keys[0].Service
		if s := o.site(name); s != nil {
			b.parts[name] = share{site: s, keys: keys, sum: sums[name]}
		}
	}
	return b
}

// holds reports whether a checker is told by new assignments what it was told before.
func (b *basis) holds(o *assignments, id string, can health.Protocols, interval time.Duration) bool {
	if b == nil || b.can != can || b.interval != interval {
		return false
	}
	n := 0
	for keys := range o.services(id) {
		name := keys[0].Service
		s := o.site(name)
		if s == nil {
			continue
		}
		p, ok := b.parts[name]
		if !ok || ((p.site != s || !slices.Equal(p.keys, keys)) && s.sum(keys, can) != p.sum) {
			return false
		}
		b.parts[name] = share{site: s, keys: keys, sum: p.sum} // lets go of older assignments
		n++
	}
	return n == len(b.parts)
}

// sum is that of what a checker would be told.
func (s *site) sum(keys []health.Key, can health.Protocols) (sum [sha256.Size]byte) {
	if c, _, _, err := s.cluster(keys, can); err == nil && c != nil {
		return sumOf(c)
	}
	return sum
}

func sumOf(c *healthv3.ClusterHealthCheck) (sum [sha256.Size]byte) {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
	if err != nil { // whole specifiers are encoded, too, and say so
		return sum
	}
	return sha256.Sum256(encoded)
}
