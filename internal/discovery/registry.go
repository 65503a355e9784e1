// Package discovery keeps what the fleet is made of: the services of the
// configuration file, those of the API, and those whose endpoints another
// control plane, DNS or a Kubernetes cluster lists, each with one owner, and the health that operators
// set. What the API and operators set survives restarts.
package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// Store is where the registry keeps its state; see package store, whose types
// fit.
type Store interface {
	// Get reads a key, or isobar.ErrNotFound.
	Get(ctx context.Context, key string) (struct {
		Data     []byte
		Revision uint64
	}, error)
	// CompareAndSwapNotify durably writes a key that is at revision (0 = not there). It
	// calls written, at most once, when only the sync to the disk is left. It keeps no
	// reference to data.
	CompareAndSwapNotify(ctx context.Context, key string, revision uint64, data []byte, written func()) (uint64, error)
}

// Options of [Open]. Store is required.
type Options struct {
	Store Store
	// Validate, if not nil, checks all services together before a change takes
	// effect; its error refuses the change.
	Validate func(services []isobar.Service) error
	// Shared keeps what the API and operators write for a group of replicas; Store then
	// has a copy. nil = the server is alone.
	Shared     Shared
	Logger     *slog.Logger          // nil = slog.Default()
	Registerer prometheus.Registerer // nil = no metrics
}

const (
	// storeKey is the one key under which everything is kept: a change is
	// durable as a whole or not at all.
	storeKey = "sources"
	// restartGap is how far the revision jumps at a start. It covers what a
	// process may have counted without being able to save it.
	restartGap = 1000
)

// Registry knows who owns which service. All methods may be called at once
// from any goroutine.
type Registry struct {
	opts      Options
	log       *slog.Logger
	metrics   metrics
	changed   chan struct{}
	state     atomic.Pointer[state] // in force: what planners see
	published atomic.Pointer[state] // what readers of the API see: the same, without a change that is being synced

	mu            sync.Mutex // held while a change is made and saved
	now           contents
	failing       bool     // the last save failed
	leading       *Leading // nil = this replica does not lead, or is no replica
	storeRevision uint64   // of the last version read from or written to the store
	savedRevision uint64   // of the contents that were saved last
	encoded       encodings
	written       []byte // memory for what is written
}

// state is what readers get. Immutable.
type state struct {
	topology      *isobar.Topology
	health        health.Table
	origins       origins                           // of the health that operators set
	healthChanges []HealthChange                    // the newest last
	objects       []*isobar.Object                  // sorted by name
	marks         func() (map[string][]byte, error) // health and origins as entries that replicas share
}

// Open loads what was saved. The topology holds the API's services from then
// on, and those of the file after [Registry.SetFile].
func Open(ctx context.Context, o Options) (*Registry, error) {
	r := &Registry{opts: o, log: o.Logger, changed: make(chan struct{}, 1)}
	if r.log == nil {
		r.log = slog.Default()
	}
	c, unsaved, err := r.begin(ctx)
	if errors.Is(unsaved, isobar.ErrStale) { // the newest version could not be read, and now it can
		c, unsaved, err = r.begin(ctx)
	}
	if err != nil {
		return nil, err
	}
	if unsaved != nil {
		// What was read is good nevertheless; writes are refused until it works.
		r.log.Error("could not save the services; serving them from memory", "error", unsaved)
	}
	r.metrics = newMetrics(o.Registerer)
	r.publish(c)
	return r, nil
}

// begin loads what was saved and takes revisions of its own from there on.
func (r *Registry) begin(ctx context.Context) (c contents, unsaved, err error) {
	if c, err = r.load(ctx); err != nil {
		return c, nil, err
	}
	if r.opts.Shared != nil {
		c.shared = true
		c.api = stamp(c.api, nil, c.revisionOf)
	}
	c.revision += restartGap
	return c, r.save(ctx, c), nil
}

// State returns the present topology and the health that operators set. Both
// are immutable.
func (r *Registry) State() (*isobar.Topology, health.Table) {
	s := r.state.Load()
	return s.topology, s.health
}

// Changed signals that State gives something new. It holds one signal:
// several changes may come as one. It serves one reader.
func (r *Registry) Changed() <-chan struct{} { return r.changed }

// List returns all objects in force, sorted by name.
func (r *Registry) List() []isobar.Object {
	objects := r.published.Load().objects
	out := make([]isobar.Object, len(objects))
	for i := range objects {
		out[i] = cloneObject(objects[i])
	}
	return out
}

// Objects returns all objects in force, sorted by name, without a copy: nobody may change
// them. A copy of a million endpoints takes 80 MB.
func (r *Registry) Objects() []*isobar.Object { return r.published.Load().objects }

// Get returns the object in force under a name, or isobar.ErrNotFound.
func (r *Registry) Get(name string) (isobar.Object, error) {
	objects := r.published.Load().objects
	i, found := slices.BinarySearchFunc(objects, name, func(o *isobar.Object, name string) int {
		return strings.Compare(o.Service.Name, name)
	})
	if !found {
		return isobar.Object{}, notFound(name)
	}
	return cloneObject(objects[i]), nil
}

// Put creates or replaces a service of the API. With ifMatch other than 0 the
// object must stand at that revision (isobar.ErrStale). A service of the file
// is refused (isobar.ErrOwned). It returns the object and the revision of the
// first topology that has it.
func (r *Registry) Put(name string, svc isobar.Service, ifMatch uint64) (obj isobar.Object, topology uint64, err error) {
	svc = cloneService(svc)
	topology, err = r.change(func(c contents) (contents, error) { return c.put(name, svc, ifMatch) })
	if err != nil {
		return isobar.Object{}, 0, err
	}
	obj, err = r.Get(name)
	return obj, topology, err
}

// PutAll replaces all services of the API at once, or none. Services that stay
// as they are keep their revision.
func (r *Registry) PutAll(services []isobar.Service) (topology uint64, err error) {
	services = cloneServices(services)
	return r.change(func(c contents) (contents, error) { return c.putAll(services) })
}

// Delete removes a service of the API; one of the same name in the file takes
// its place.
func (r *Registry) Delete(name string, ifMatch uint64) (topology uint64, err error) {
	return r.change(func(c contents) (contents, error) { return c.remove(name, ifMatch) })
}

// SetHealths overrides the health of endpoints of any service, of
// all of them or none, until the endpoints go. It remembers who ordered it, and why.
func (r *Registry) SetHealths(o *isobar.HealthChange) (topology uint64, err error) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	return r.change(func(c contents) (contents, error) { return c.order(o, now) })
}

// Preview returns the topology that [Registry.SetConfigured] would make, which
// services would not be in force, and the health that operators set. Nothing
// changes.
func (r *Registry) Preview(
	file []isobar.Service, providers []Provided, network *isobar.Network,
) (t *isobar.Topology, operators health.Table, conflicts []string, err error) {
	file, providers = cloneServices(file), cloneProvided(providers)
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := r.now.setFile(file, network)
	if err == nil {
		next, err = next.setListed(providers)
	}
	if err != nil {
		return nil, health.Table{}, nil, err
	}
	if next, _, err = r.checked(next); err != nil {
		return nil, health.Table{}, nil, err
	}
	return next.topology(next.objects()), next.health, next.conflicts(), nil
}

// change makes a change that must be durable before it is answered.
func (r *Registry) change(edit func(contents) (contents, error)) (topology uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := edit(r.now)
	if err != nil {
		return 0, err
	}
	next, changed, err := r.checked(next)
	if err != nil || !changed {
		return r.now.revision, err
	}
	if r.opts.Shared == nil {
		if err := r.saveInForce(next); err != nil {
			return 0, err
		}
		return next.revision, nil
	}
	if err := r.share(next); err != nil {
		return 0, err
	}
	r.publish(next)
	return next.revision, nil
}

// saveInForce saves a change and puts it in force while the disk is synced: that takes
// longer than to plan and to send it. If the sync fails, what was in force before is in
// force again, with a newer revision. While saves fail, nothing is in force before it
// is saved, so that clients don't follow changes which are refused. r.mu is held.
func (r *Registry) saveInForce(next contents) error {
	before, early := r.now, false
	written := func() {
		early = true
		r.putInForce(next)
	}
	if r.failing {
		written = func() {}
	}
	err := r.saveNotify(context.Background(), next, written)
	switch {
	case err == nil && early:
		r.showInForce()
	case err == nil:
		r.publish(next)
	case early:
		before.revision = next.revision + 1
		r.publish(before)
		r.log.Error("could not sync a change to disk; restored the previous state", "error", err)
	}
	return err
}

// checked prepares what shall come next: limits, the check of all services
// together, and the revision.
func (r *Registry) checked(next contents) (_ contents, changed bool, err error) {
	next = next.pruned()
	if next.equal(r.now) {
		return r.now, false, nil
	}
	next.revision = r.now.revision + 1
	next = next.stamped(r.now)
	objects := next.objects()
	if len(objects) > isobar.MaxServices {
		return r.now, false, fmt.Errorf("%w: %d services are more than the %d that one server takes", isobar.ErrInvalid, len(objects), isobar.MaxServices)
	}
	if r.opts.Validate == nil {
		return next, true, nil
	}
	services := make([]isobar.Service, len(objects))
	for i := range objects {
		services[i] = objects[i].Service
	}
	if err := r.opts.Validate(services); err != nil {
		return r.now, false, err
	}
	return next, true, nil
}

// publish makes c what planners and readers of the API see. r.mu is held, or r not
// shared yet.
func (r *Registry) publish(c contents) {
	r.putInForce(c)
	r.showInForce()
}

// showInForce shows readers of the API what is in force.
func (r *Registry) showInForce() { r.published.Store(r.state.Load()) }

// putInForce makes c what planners see.
func (r *Registry) putInForce(c contents) {
	r.now = c
	objects := c.objects()
	r.state.Store(&state{
		topology: c.topology(objects), health: c.health, origins: c.origins, healthChanges: c.healthChanges, objects: objects,
		marks: sync.OnceValues(contents{health: c.health, origins: c.origins}.entries),
	})
	r.metrics.show(objects, len(c.conflicts()))
	select {
	case r.changed <- struct{}{}:
	default: // a signal is waiting already
	}
}

func notFound(name string) error { return fmt.Errorf("service %s: %w", name, isobar.ErrNotFound) }

// save writes c under the one key. r.mu is held, or r not shared yet.
func (r *Registry) save(ctx context.Context, c contents) error {
	return r.saveNotify(ctx, c, func() {})
}

// saveNotify is save that calls written when only the sync is left.
func (r *Registry) saveNotify(ctx context.Context, c contents, written func()) error {
	data, encoded, err := c.encode(r.encoded, r.written)
	if err != nil {
		return err
	}
	if r.written = data; cap(data) > 4*len(data)+1<<20 {
		r.written = nil // there were many more services once
	}
	revision, err := r.opts.Store.CompareAndSwapNotify(ctx, storeKey, r.storeRevision, data, written)
	if r.failing = err != nil; err == nil {
		// A change that fails leaves its revision to the next one, so what was
		// encoded for it is forgotten.
		r.storeRevision, r.savedRevision, r.encoded = revision, c.revision, encoded
		return nil
	}
	// A write can fail after it took effect; the next one has to build on what
	// stands there now.
	if v, getErr := r.opts.Store.Get(ctx, storeKey); getErr == nil {
		r.storeRevision = v.Revision
	}
	return fmt.Errorf("saving services: %w", err)
}

func (r *Registry) load(ctx context.Context) (contents, error) {
	v, err := r.opts.Store.Get(ctx, storeKey)
	if errors.Is(err, isobar.ErrNotFound) {
		return contents{}, nil
	}
	if err != nil {
		return contents{}, fmt.Errorf("loading services: %w", err)
	}
	r.storeRevision = v.Revision
	c, err := decode(v.Data)
	if err != nil {
		return contents{}, fmt.Errorf("loading services: %w", err)
	}
	return c, nil
}

// Overrides lists the health that operators set, sorted by service and
// address, with the locality in which each endpoint stands now.
func (r *Registry) Overrides() []isobar.HealthOverride {
	s := r.published.Load()
	set := s.health.Overrides()
	out := make([]isobar.HealthOverride, 0, len(set))
	where := map[string]isobar.Locality{} // of the endpoints of one service
	for i, o := range set {
		if i == 0 || set[i-1].Service != o.Service {
			where = localitiesOf(s.topology, o.Service)
		}
		by := s.origins[o.Key]
		out = append(out, isobar.HealthOverride{
			Service: o.Service, Address: o.Address, Locality: where[o.Address], Status: o.Status, Since: by.since, Who: by.who, Reason: by.reason,
		})
	}
	return out
}

// localitiesOf tells where the endpoints of a service are, by address.
func localitiesOf(t *isobar.Topology, service string) map[string]isobar.Locality {
	out := map[string]isobar.Locality{}
	svc, found := t.Service(service)
	if !found {
		return out
	}
	for i := range svc.Localities {
		for j := range svc.Localities[i].Endpoints {
			out[svc.Localities[i].Endpoints[j].Address] = svc.Localities[i].Locality
		}
	}
	return out
}

// HealthChanges returns the changes in force that came after a revision of the topology, up to another.
func (r *Registry) HealthChanges(after, upTo uint64) []HealthChange {
	var out []HealthChange
	for _, o := range r.state.Load().healthChanges {
		if o.Revision > after && o.Revision <= upTo {
			out = append(out, o)
		}
	}
	return out
}
