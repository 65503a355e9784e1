package discovery

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// contents is everything the registry knows: a value that changes give a new
// one of. The maps and the objects are never written once they are part of it.
type contents struct {
	revision uint64
	api      map[string]*isobar.Object
	file     map[string]*isobar.Object // also those that the API keeps out of force
	listed   map[string]*isobar.Object // by providers; those of API and file come before them
	awaited  map[string]*isobar.Object // that their providers have listed nothing of yet
	// own and ownAwaited are listed and awaited as the providers of this replica have
	// them; a server that is alone has none. See [Registry.Lead].
	own, ownAwaited map[string]*isobar.Object

	network       *isobar.Network
	health        health.Table
	origins       origins        // of health
	healthChanges []HealthChange // of operators, the newest last; not saved
	// fileSeen says that the file was read in this process. Before, endpoints
	// that an override names may still come.
	fileSeen bool
	// shared says that replicas share what the API and operators write: revisions of
	// objects are the same on all of them.
	shared bool
}

// effective returns the object in force under a name.
func (c contents) effective(name string) (o *isobar.Object, exists bool) {
	for _, owned := range c.owners() {
		if o, ok := owned[name]; ok {
			return o, true
		}
	}
	return nil, false
}

// owners returns the objects of each owner, in the order in which they count.
func (c contents) owners() [3]map[string]*isobar.Object {
	return [...]map[string]*isobar.Object{c.api, c.file, c.listed}
}

// objects lists what is in force, sorted by name.
func (c contents) objects() []*isobar.Object {
	out := make([]*isobar.Object, 0, len(c.api)+len(c.file)+len(c.listed))
	for _, o := range c.api {
		out = append(out, o)
	}
	for name, o := range c.file {
		if _, taken := c.api[name]; !taken {
			out = append(out, o)
		}
	}
	for name, o := range c.listed {
		if !c.claimed(name) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *isobar.Object) int { return strings.Compare(a.Service.Name, b.Service.Name) })
	return out
}

// claimed reports whether a name belongs to the API or the file.
func (c contents) claimed(name string) bool {
	_, api := c.api[name]
	_, file := c.file[name]
	return api || file
}

// conflicts says which services of the file and of providers are not in force,
// sorted.
func (c contents) conflicts() []string {
	var out []string
	for name, o := range c.listed {
		if c.claimed(name) {
			out = append(out, fmt.Sprintf("service %s of discovery.%s belongs to the API or the file, which come first: remove it here or there", name, o.Owner))
		}
	}
	for name := range c.file {
		if _, taken := c.api[name]; taken {
			out = append(out, fmt.Sprintf("service %s belongs to the API, which had it first: delete it there, or remove it from the file", name))
		}
	}
	slices.Sort(out)
	return out
}

func (c contents) put(name string, svc isobar.Service, ifMatch uint64) (contents, error) {
	if name == "" || svc.Name != name {
		return c, fmt.Errorf("%w: the object is named %q, not %q", isobar.ErrInvalid, svc.Name, name)
	}
	have, exists := c.effective(name)
	revision := uint64(0) // when there is none
	if exists {
		revision = have.Revision
	}
	if exists && have.Owner != isobar.OwnerAPI {
		return c, owned(name, have.Owner)
	}
	if ifMatch != 0 && revision != ifMatch {
		return c, stale(name, revision, ifMatch)
	}
	c.api = maps.Clone(c.api)
	if c.api == nil {
		c.api = map[string]*isobar.Object{}
	}
	c.api[name] = &isobar.Object{Service: svc, Owner: isobar.OwnerAPI}
	return c, nil
}

func (c contents) putAll(services []isobar.Service) (contents, error) {
	next := make(map[string]*isobar.Object, len(services))
	for _, s := range services {
		if _, twice := next[s.Name]; twice || s.Name == "" {
			return c, fmt.Errorf("%w: service %q is given twice, or has no name", isobar.ErrInvalid, s.Name)
		}
		_, ours := c.api[s.Name]
		if have, exists := c.effective(s.Name); exists && !ours {
			return c, owned(s.Name, have.Owner)
		}
		next[s.Name] = &isobar.Object{Service: s, Owner: isobar.OwnerAPI}
	}
	c.api = next
	return c, nil
}

func (c contents) remove(name string, ifMatch uint64) (contents, error) {
	have, exists := c.effective(name)
	switch {
	case !exists:
		return c, notFound(name)
	case have.Owner != isobar.OwnerAPI:
		return c, owned(name, have.Owner)
	case ifMatch != 0 && have.Revision != ifMatch:
		return c, stale(name, have.Revision, ifMatch)
	}
	c.api = maps.Clone(c.api)
	delete(c.api, name)
	return c, nil
}

func (c contents) setFile(services []isobar.Service, network *isobar.Network) (_ contents, err error) {
	if c.file, err = objectsOf(services, isobar.OwnerFile); err != nil {
		return c, err
	}
	c.network, c.fileSeen = network, true
	return c, nil
}

func (c contents) setListed(providers []Provided) (_ contents, err error) {
	listed, awaited := map[string]*isobar.Object{}, map[string]*isobar.Object{}
	for i := range providers {
		p := &providers[i]
		if err := addObjects(listed, p.Listed, p.Owner); err != nil {
			return c, err
		}
		if err := addObjects(awaited, p.Awaited, p.Owner); err != nil {
			return c, err
		}
	}
	c.listed, c.awaited = listed, awaited
	return c, nil
}

// waiting lists the services that have no endpoints yet, sorted by name: those
// that are awaited, and that nobody else has.
func (c contents) waiting() []isobar.Service {
	var out []isobar.Service
	for _, name := range slices.Sorted(maps.Keys(c.awaited)) {
		if _, exists := c.effective(name); !exists {
			out = append(out, c.awaited[name].Service)
		}
	}
	return out
}

// changeListed costs no more than what it changes: the others keep their identity.
func (c contents) changeListed(owner string, put []isobar.Service, remove []string) (contents, error) {
	add, err := objectsOf(put, owner)
	if err != nil {
		return c, err
	}
	for name := range add {
		have, exists := c.listed[name]
		if awaited, waits := c.awaited[name]; waits { // its provider comes first, also before it lists anything
			have, exists = awaited, true
		}
		if exists && have.Owner != owner {
			return c, owned(name, have.Owner)
		}
	}
	next := make(map[string]*isobar.Object, len(c.listed)+len(add))
	maps.Copy(next, c.listed)
	for _, name := range remove {
		if have, exists := next[name]; exists && have.Owner == owner {
			delete(next, name)
		}
	}
	maps.Copy(next, add)
	c.listed = next
	return c, nil
}

func objectsOf(services []isobar.Service, owner string) (map[string]*isobar.Object, error) {
	out := make(map[string]*isobar.Object, len(services))
	return out, addObjects(out, services, owner)
}

// addObjects adds services of an owner, none of which may be there already.
func addObjects(to map[string]*isobar.Object, services []isobar.Service, owner string) error {
	for _, s := range services {
		if _, twice := to[s.Name]; twice || s.Name == "" {
			return fmt.Errorf("%w: service %q is given twice, or has no name", isobar.ErrInvalid, s.Name)
		}
		to[s.Name] = &isobar.Object{Service: s, Owner: owner}
	}
	return nil
}

func (c contents) setHealth(service, address string, h isobar.HealthStatus, by origin) (contents, error) {
	if h > isobar.Degraded {
		return c, fmt.Errorf("%w: no health status %d", isobar.ErrInvalid, h)
	}
	o, exists := c.effective(service)
	if !exists {
		return c, notFound(service)
	}
	_, e, found := o.Service.Endpoint(address)
	if !found {
		return c, fmt.Errorf("endpoint %s of service %s: %w", address, service, isobar.ErrNotFound)
	}
	key := health.Key{Service: service, Address: e.Address}
	before := c.health
	if h == isobar.Unknown {
		c.health = c.health.Without(func(k health.Key) bool { return k == key })
	} else {
		c.health = c.health.With(health.Override{Key: key, Status: h})
	}
	if !c.health.Equal(before) { // saying the same again changes nothing, nor since when
		c.origins = c.origins.with(key, by).of(c.health)
	}
	return c, nil
}

// order sets health as an operator asks. The next revision has it.
func (c contents) order(o *isobar.HealthChange, now time.Time) (contents, error) {
	before, by := c.health, origin{since: now, who: o.Who, reason: o.Reason}
	for _, a := range o.Addresses {
		var err error
		if c, err = c.setHealth(o.Service, a, o.Status, by); err != nil {
			return c, err
		}
	}
	next := HealthChange{HealthChange: *o, Revision: c.revision + 1}
	next.Addresses = slices.Clone(o.Addresses)
	if svc, ok := c.effective(o.Service); ok {
		next.What = whatOf(&svc.Service, &next.HealthChange, before)
	}
	kept := c.healthChanges[max(0, len(c.healthChanges)+1-maxHealthChanges):]
	c.healthChanges = append(slices.Clone(kept), next)
	return c, nil
}

// pruned drops overrides of endpoints that are gone: an address that comes
// back may be another machine.
func (c contents) pruned() contents {
	overrides := c.health.Overrides()
	if !c.fileSeen || len(overrides) == 0 {
		return c
	}
	known := map[string]map[string]bool{}
	gone := map[health.Key]bool{}
	for _, o := range overrides {
		if known[o.Service] == nil {
			object, exists := c.effective(o.Service)
			if _, awaited := c.awaited[o.Service]; awaited && !exists {
				continue // its endpoints may still come
			}
			known[o.Service] = endpointsOf(object)
		}
		if !known[o.Service][o.Address] {
			gone[o.Key] = true
		}
	}
	if len(gone) > 0 {
		c.health = c.health.Without(func(k health.Key) bool { return gone[k] })
		c.origins = c.origins.of(c.health)
	}
	return c
}

// stamped returns each object that differs from before the present revision, and
// the others the one they had.
func (c contents) stamped(before contents) contents {
	c.api = stamp(c.api, before.api, c.revisionOf)
	c.file = stamp(c.file, before.file, c.revisionOf)
	c.listed = stamp(c.listed, before.listed, c.revisionOf)
	if before.network != nil && sameNetwork(c.network, before.network) {
		c.network = before.network
	}
	return c
}

func stamp(objects, before map[string]*isobar.Object, revision func(*isobar.Object) uint64) map[string]*isobar.Object {
	out := make(map[string]*isobar.Object, len(objects))
	for name, o := range objects {
		if b, ok := before[name]; ok && sameService(o, b) {
			out[name] = b // the very same, so that planners see that nothing changed
			continue
		}
		stamped := *o
		stamped.Revision = revision(o)
		out[name] = &stamped
	}
	return out
}

func (c contents) equal(o contents) bool {
	return c.fileSeen == o.fileSeen && maps.EqualFunc(c.awaited, o.awaited, sameService) &&
		maps.EqualFunc(c.api, o.api, sameService) && maps.EqualFunc(c.file, o.file, sameService) && maps.EqualFunc(c.listed, o.listed, sameService) &&
		sameNetwork(c.network, o.network) &&
		slices.Equal(c.health.Overrides(), o.health.Overrides()) && c.origins.equal(o.origins)
}

func sameService(a, b *isobar.Object) bool {
	return a == b || a.Owner == b.Owner && reflect.DeepEqual(&a.Service, &b.Service)
}

func endpointsOf(o *isobar.Object) map[string]bool {
	out := map[string]bool{}
	if o == nil {
		return out
	}
	for i := range o.Service.Localities {
		for j := range o.Service.Localities[i].Endpoints {
			out[o.Service.Localities[i].Endpoints[j].Address] = true
		}
	}
	return out
}

func owned(name, owner string) error {
	return fmt.Errorf("service %s is %w owner: it belongs to the %s", name, isobar.ErrOwned, cmp.Or(map[string]string{
		isobar.OwnerFile: "configuration file", isobar.OwnerAPI: "API", isobar.OwnerXDS: "other control plane (discovery.xds of the configuration file)",
		isobar.OwnerDNS:        "names of discovery.dns of the configuration file",
		isobar.OwnerKubernetes: "Kubernetes cluster (discovery.kubernetes of the configuration file)",
	}[owner], owner))
}

func stale(name string, have, want uint64) error {
	if have == 0 {
		return fmt.Errorf("service %s: %w: it does not exist, revision %d was wanted", name, isobar.ErrStale, want)
	}
	return fmt.Errorf("service %s: %w: it is at %d, not %d", name, isobar.ErrStale, have, want)
}

func sameNetwork(a, b *isobar.Network) bool {
	return slices.Equal(a.Rules(), b.Rules()) && slices.Equal(a.Egress(), b.Egress())
}

// topology is what planners see of the objects in force.
func (c contents) topology(objects []*isobar.Object) *isobar.Topology {
	t := &isobar.Topology{Network: c.network, Revision: c.revision, Services: make([]isobar.Service, len(objects)), Awaited: c.waiting()}
	if c.shared {
		t.Owners = c.ownersOf(objects, t.Awaited)
	}
	for i := range objects {
		// Not cloned: services are immutable in here and in normal form, and
		// planners tell by identity what has not changed.
		t.Services[i] = objects[i].Service
	}
	return t
}

// ownersOf returns the owner of each service that the configuration file does not list.
func (c contents) ownersOf(objects []*isobar.Object, awaited []isobar.Service) map[string]string {
	out := map[string]string{}
	for i := range objects {
		if objects[i].Owner != isobar.OwnerFile {
			out[objects[i].Service.Name] = objects[i].Owner
		}
	}
	for i := range awaited {
		out[awaited[i].Name] = c.awaited[awaited[i].Name].Owner
	}
	return out
}
