package discovery

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// Shared keeps what the API and operators write for a group of replicas. The leader of
// the group writes; the others follow.
type Shared interface {
	// Write makes all changes durable for the group, or none.
	Write(ctx context.Context, changes []SharedChange) error
	// Force does so while no replica leads. The next leader puts the changes in force.
	Force(ctx context.Context, changes []SharedChange) error
}

// SharedChange sets an entry, or removes it where Data is nil. It is an alias of a
// plain struct so that implementations need not import this package.
type SharedChange = struct {
	Key  string
	Data []byte
}

// Entries have these prefixes. Names are escaped as in a path of a URL.
const (
	sharedServices = "services/" // NAME
	sharedHealth   = "health/"   // SERVICE/ADDRESS
)

// sharedFormat is the version of entries that this program writes and reads.
const sharedFormat = 1

// sharedEntry is the data of an entry. One field beside the format is set.
type sharedEntry struct {
	Format   int                   `json:"format"`
	Service  *isobar.Service       `json:"service,omitempty"`
	Override *sharedHealthOverride `json:"health,omitempty"`
}

type sharedHealthOverride struct {
	Service string              `json:"service"`
	Address string              `json:"address"`
	Status  isobar.HealthStatus `json:"status"`
	// Earlier versions did not write these.
	Since  time.Time `json:"since,omitzero"`
	Who    string    `json:"who,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// Operated is what the API and operators wrote.
type Operated struct {
	services []isobar.Service
	health   []sharedHealthOverride
}

// WithServices returns o with these services in place of its own.
func (o *Operated) WithServices(services []isobar.Service) Operated {
	return Operated{services: services, health: o.health}
}

// DecodeShared reads entries. Entries of other kinds are left out.
func DecodeShared(entries map[string][]byte) (Operated, error) {
	var out Operated
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		service, mark := strings.HasPrefix(key, sharedServices), strings.HasPrefix(key, sharedHealth)
		if !service && !mark {
			continue
		}
		var e sharedEntry
		if err := json.Unmarshal(entries[key], &e); err != nil {
			return Operated{}, sharedError(key, entries[key], err)
		}
		switch {
		case e.Format > sharedFormat:
			return Operated{}, sharedError(key, entries[key], nil)
		case service && e.Service != nil && key == serviceKey(e.Service.Name):
			out.services = append(out.services, cloneService(*e.Service))
		case mark && e.Override != nil && key == healthKey(e.Override.Service, e.Override.Address):
			out.health = append(out.health, *e.Override)
		default:
			return Operated{}, fmt.Errorf("entry %s is of an unknown kind", key)
		}
	}
	return out, nil
}

// sharedError tells why the data of an entry can't be read.
func sharedError(key string, data []byte, err error) error {
	var e struct {
		Format int `json:"format"`
	}
	if json.Unmarshal(data, &e) == nil && e.Format > sharedFormat { // its other fields may be of other types
		return fmt.Errorf("entry %s: %w (format %d, this one reads up to %d)", key, ErrNewerFormat, e.Format, sharedFormat)
	}
	return fmt.Errorf("entry %s can't be read: %w", key, err)
}

// OfService reports whether a key is that of a service of the API.
func OfService(key string) bool { return strings.HasPrefix(key, sharedServices) }

func serviceKey(name string) string { return sharedServices + url.PathEscape(name) }

func healthKey(service, address string) string {
	return sharedHealth + url.PathEscape(service) + "/" + url.PathEscape(address)
}

// Entries returns everything that the API and operators wrote, by key.
func (r *Registry) Entries() (map[string][]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.entries()
}

// Marks returns the entries of health alone, by key. They are immutable.
func (r *Registry) Marks() (map[string][]byte, error) { return r.state.Load().marks() }

// ServiceEntries returns the entries of services of the API, by key.
func ServiceEntries(services []isobar.Service) (map[string][]byte, error) {
	api := make(map[string]*isobar.Object, len(services))
	if err := addObjects(api, services, isobar.OwnerAPI); err != nil {
		return nil, err
	}
	return contents{api: api}.entries()
}

// entries returns everything that is shared, by key.
func (c contents) entries() (map[string][]byte, error) {
	changes, err := contents{}.sharedChanges(c)
	if err != nil {
		return nil, err
	}
	out := make(map[string][]byte, len(changes))
	for i := range changes {
		out[changes[i].Key] = changes[i].Data
	}
	return out, nil
}

// sharedChanges lists what differs in another contents, sorted by key.
func (c contents) sharedChanges(next contents) ([]SharedChange, error) {
	var out []SharedChange
	add := func(key string, e *sharedEntry) error {
		if e == nil {
			out = append(out, SharedChange{Key: key})
			return nil
		}
		e.Format = sharedFormat
		data, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("%w: %s can't be saved: %w", isobar.ErrInvalid, key, err)
		}
		out = append(out, SharedChange{Key: key, Data: data})
		return nil
	}
	for name, o := range next.api {
		if have, ok := c.api[name]; ok && sameService(have, o) {
			continue
		}
		if err := add(serviceKey(name), &sharedEntry{Service: &o.Service}); err != nil {
			return nil, err
		}
	}
	for name := range c.api {
		if _, stays := next.api[name]; !stays {
			_ = add(serviceKey(name), nil) // a removal encodes nothing
		}
	}
	before, after := c.marks(), next.marks()
	for key, m := range after {
		if have, ok := before[key]; ok && have.Status == m.Status {
			continue
		}
		if err := add(healthKey(key.Service, key.Address), &sharedEntry{Override: &m}); err != nil {
			return nil, err
		}
	}
	for key := range before {
		if _, stays := after[key]; !stays {
			_ = add(healthKey(key.Service, key.Address), nil)
		}
	}
	slices.SortFunc(out, func(a, b SharedChange) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

func (c contents) marks() map[health.Key]sharedHealthOverride {
	out := map[health.Key]sharedHealthOverride{}
	for _, o := range c.health.Overrides() {
		by := c.origins[o.Key]
		out[o.Key] = sharedHealthOverride{Service: o.Service, Address: o.Address, Status: o.Status, Since: by.since, Who: by.who, Reason: by.reason}
	}
	return out
}

// share makes a change durable for the group before it takes effect. r.mu is held.
func (r *Registry) share(next contents) error {
	changes, err := r.now.sharedChanges(next)
	if err != nil {
		return err
	}
	if len(changes) > 0 {
		if err := r.opts.Shared.Write(context.Background(), changes); err != nil {
			return err
		}
	}
	r.trySave(next)
	return nil
}

// ForceHealths keeps a health change for the next leader of a group that has none, or returns
// isobar.ErrUnavailable. Nothing changes on this replica before that leader's first plan.
func (r *Registry) ForceHealths(ctx context.Context, o *isobar.HealthChange) error {
	if r.opts.Shared == nil {
		return fmt.Errorf("%w: this server belongs to no group of replicas", isobar.ErrUnavailable)
	}
	by := origin{since: time.Now().UTC().Truncate(time.Millisecond), who: o.Who, reason: o.Reason}
	r.mu.Lock()
	next := r.now
	r.mu.Unlock()
	next.health, next.origins = health.NewTable(nil), origins{} // so that what stands already is written, too: the engine may have something else
	var changes []SharedChange
	for _, a := range o.Addresses {
		var err error
		if next, err = next.setHealth(o.Service, a, o.Status, by); err != nil {
			return err
		}
		if o.Status == isobar.Unknown {
			object, _ := next.effective(o.Service)
			_, e, _ := object.Service.Endpoint(a) // setHealth found it
			changes = append(changes, SharedChange{Key: healthKey(o.Service, e.Address)})
		}
	}
	if o.Status != isobar.Unknown {
		entries, err := contents{health: next.health, origins: next.origins}.entries()
		if err != nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			changes = append(changes, SharedChange{Key: key, Data: entries[key]})
		}
	}
	return r.opts.Shared.Force(ctx, changes)
}

// shareRemovals takes marks of endpoints that are gone out of what the group shares, if
// this replica leads. Otherwise its leader does. r.mu is held.
func (r *Registry) shareRemovals(next contents) {
	changes, err := r.now.sharedChanges(next)
	if err != nil || len(changes) == 0 {
		return
	}
	if err := r.opts.Shared.Write(context.Background(), changes); err != nil {
		r.log.Debug("could not remove the marks of removed endpoints from the election engine", "error", err)
	}
}

// Configured are services of the configuration file, those that providers list, and the
// network, as the group has them in force.
type Configured struct {
	Services  []isobar.Service
	Providers []Provided
	Network   *isobar.Network
}

// Follow takes over what the group has: what the API and operators wrote, and the
// services of the configuration and of providers; nil leaves those as they are. Nothing
// is checked: the leader did.
func (r *Registry) Follow(o Operated, file *Configured) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.now
	var err error
	if file != nil {
		if next, err = next.setFile(cloneServices(file.Services), file.Network); err != nil {
			return err
		}
		if next, err = next.setListed(cloneProvided(file.Providers)); err != nil {
			return err
		}
		r.leading = nil
	}
	next.api = make(map[string]*isobar.Object, len(o.services))
	if err := addObjects(next.api, o.services, isobar.OwnerAPI); err != nil {
		return err
	}
	next.origins = origins{}
	var overrides []health.Override
	for _, m := range o.health {
		key := health.Key{Service: m.Service, Address: m.Address}
		overrides = append(overrides, health.Override{Key: key, Status: m.Status})
		next.origins[key] = origin{since: m.Since, who: m.Who, reason: m.Reason}
	}
	next.health = health.NewTable(nil).WithAll(overrides)
	if next.equal(r.now) {
		return nil
	}
	next.revision = r.now.revision + 1
	next = next.stamped(r.now)
	r.trySave(next)
	r.publish(next)
	return nil
}

// maxRevision keeps revisions in what every reader of JSON can represent.
const maxRevision = 1<<53 - 1

// revisionOf returns the revision of an object that changed: the number of the change,
// or, where replicas share it, what its content tells.
func (c contents) revisionOf(o *isobar.Object) uint64 {
	if !c.shared {
		return c.revision
	}
	data, err := json.Marshal(o.Service)
	if err != nil {
		return c.revision
	}
	sum := sha256.Sum256(append(data, o.Owner...))
	return max(1, binary.BigEndian.Uint64(sum[:])&maxRevision)
}
