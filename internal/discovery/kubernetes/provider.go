package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/keep"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/table"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// holdOff is for how long changes are gathered before they are handed over: an
// endpoint that moves between two slices changes both within it.
const holdOff = 100 * time.Millisecond

const (
	// retryEvery is how often services are handed over again that the registry has
	// refused: another owner may have gone, or there may be room now.
	retryEvery = time.Minute
	// maxTries bounds how often one change is handed over in parts to find what the
	// registry refuses of it. Parts that are not tried are refused as a whole, until
	// the next time.
	maxTries = 64
)

// Provider watches a cluster. Open, then Configure, then Run.
type Provider struct {
	opts    Options
	metrics *metrics
	saver   *keep.Saver
	limit   rpc.LogLimit // of what the API server can trigger

	changed chan struct{} // the configuration names another cluster; capacity 1
	dirty   chan struct{} // the table has changed; capacity 1

	outdated keep.OutdatedList

	mu      sync.Mutex // guards all below
	cfg     *Config    // nil = no cluster is watched
	session *session   // nil = none has begun
	entries map[string]*entry
	opened  time.Time                  // when nothing was known but what was saved
	synced  bool                       // the entries are those of the session
	answer  chan struct{}              // closed when the cluster was listed once, or is known from before
	places  map[string]isobar.Locality // of Nodes, as they were known before the session
	nodes   chan struct{}              // closed when something about Nodes has changed, and replaced
}

// Open loads what was listed last. Nothing is asked and nothing handed over
// before [Provider.Configure] and [Provider.Run].
func Open(ctx context.Context, o Options) (*Provider, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	p := &Provider{
		opts: o, changed: make(chan struct{}, 1), dirty: make(chan struct{}, 1), answer: make(chan struct{}), nodes: make(chan struct{}),
		entries: map[string]*entry{}, opened: time.Now(),
	}
	p.saver = keep.NewSaver(o.Store, storeKey, keep.SaverOptions{Encode: p.encode, Log: o.Log, Source: "kubernetes"})
	if err := p.load(ctx); err != nil {
		return nil, err
	}
	p.metrics = newMetrics(o.Registerer)
	return p, nil
}

// Configure changes what is watched; nil = nothing any more. It hands all services
// that are known to put, and those of which nothing is known yet, with the lock
// held that keeps others from coming between. An error of put refuses the
// configuration.
//
// A service whose endpoints came from the file or from another provider until now
// keeps those until the cluster is listed.
func (p *Provider) Configure(cfg *Config, put func(listed, unknown []isobar.Service) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.carried(cfg)
	if err := put(servicesOf(cfg, next, p.synced && p.sameCluster(cfg))); err != nil {
		return err
	}
	p.entries = next
	same, had := p.sameCluster(cfg), p.cfg != nil
	p.cfg = cfg
	if same {
		if cfg != nil && p.session != nil {
			p.session.table.SetPlaces(cfg.Places)
			keep.Signal(p.dirty)
		}
	} else {
		if had {
			p.places = nil // of another cluster
		}
		p.synced, p.session, p.opened = false, nil, time.Now()
		keep.Signal(p.changed)
	}
	p.show()
	p.saver.Changed()
	return nil
}

func (p *Provider) sameCluster(cfg *Config) bool {
	if cfg == nil || p.cfg == nil {
		return cfg == nil && p.cfg == nil
	}
	return reflect.DeepEqual(cfg.Cluster, p.cfg.Cluster)
}

// Preview returns what [Provider.Configure] would hand over, and the services of
// which nothing is known yet. Nothing changes.
func (p *Provider) Preview(cfg *Config) (listed, unknown []isobar.Service) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return servicesOf(cfg, p.carried(cfg), p.synced && p.sameCluster(cfg))
}

// carried returns the entries that another configuration begins with.
func (p *Provider) carried(cfg *Config) map[string]*entry {
	out := map[string]*entry{}
	if cfg == nil {
		return out
	}
	for name, e := range p.entries {
		if cfg.selects(name) {
			out[name] = p.seeded(e)
		}
	}
	if p.synced && p.sameCluster(cfg) {
		return out
	}
	for name := range cfg.Services {
		if out[name] != nil {
			continue
		}
		if before := p.before(name); before != nil {
			out[name] = known(name, before, nil, time.Time{})
		}
	}
	return out
}

// before returns the endpoints that a service has by the file or another provider; nil
// for none.
func (p *Provider) before(name string) []isobar.ServiceLocality {
	o, err := p.opts.Registry.Get(name)
	if err != nil || o.Owner == isobar.OwnerAPI || o.Owner == isobar.OwnerKubernetes || len(o.Service.Localities) == 0 {
		return nil
	}
	return keep.Bare(o.Service.Localities)
}

// seeded returns an entry of which nothing is in force the endpoints that its service
// has by another owner, which may be about to leave. What the cluster lists
// replaces them at once.
func (p *Provider) seeded(e *entry) *entry {
	if e.taken {
		return e
	}
	before := p.before(e.Name)
	if before == nil {
		return e
	}
	next := *e
	next.inForce, next.taken = before, true
	return &next
}

// take hands over what has changed since the last time, once everything was listed.
func (p *Provider) take() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg == nil || p.session == nil || !p.session.synced() {
		return
	}
	if !p.synced {
		p.session.table.Touch()
	}
	now := time.Now()
	changed, removed := p.session.table.Take(now)
	put := make([]isobar.Service, len(changed))
	for i := range changed {
		old := p.entries[changed[i].Name]
		e := &entry{Listed: changed[i], at: now}
		if old != nil {
			e.refused, e.inForce, e.policy, e.taken = old.refused, old.inForce, old.policy, old.taken
		}
		p.logChange(old, e)
		p.entries[e.Name] = e
		put[i] = p.cfg.service(e.Name, e.Localities, e.Policy)
	}
	if !p.synced {
		p.synced = true
		removed = p.unlisted(changed)
		p.opts.Log.Info("the Kubernetes cluster is listed", "server", p.session.host, "services", len(changed), "removed", len(removed))
	}
	for _, name := range removed {
		delete(p.entries, name)
	}
	p.put(put, removed)
	p.show()
	p.saver.Changed()
}

// retry hands over what the registry has refused.
func (p *Provider) retry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg == nil || !p.synced {
		return
	}
	var refused []isobar.Service
	for _, name := range slices.Sorted(maps.Keys(p.entries)) {
		if e := p.entries[name]; e.refused != "" {
			refused = append(refused, p.cfg.service(name, e.Localities, e.Policy))
		}
	}
	if len(refused) == 0 {
		return
	}
	p.put(refused, nil)
	p.show()
	p.saver.Changed()
}

// unlisted names the entries of before that a first list does not have.
func (p *Provider) unlisted(listed []table.Listed) []string {
	has := make(map[string]bool, len(listed))
	for i := range listed {
		has[listed[i].Name] = true
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(p.entries)) {
		if !has[name] {
			out = append(out, name)
		}
	}
	return out
}

// put hands over services, and what is removed. p.mu is held.
func (p *Provider) put(services []isobar.Service, remove []string) {
	if len(services) == 0 && len(remove) == 0 {
		return
	}
	tries := maxTries
	p.putParts(services, remove, &tries)
}

// putParts hands over services. Of several that the registry refuses together,
// each half is tried by itself: one that is refused stays as it was, and no other.
func (p *Provider) putParts(services []isobar.Service, remove []string, tries *int) {
	err := p.opts.Registry.ChangeListed(services, remove)
	*tries--
	switch half := len(services) / 2; {
	case err == nil:
		for i := range services {
			e := p.entries[services[i].Name]
			e.refused, e.inForce, e.policy, e.taken = "", e.Localities, e.Policy, true
		}
	case half > 0 && *tries > 0:
		p.putParts(services[:half], remove, tries)
		p.putParts(services[half:], nil, tries)
	default:
		for i := range services {
			p.refuse(p.entries[services[i].Name], err)
		}
		if len(services) > 0 && len(remove) > 0 {
			p.putParts(nil, remove, tries)
		}
	}
}

// refuse notes why the registry does not take what the cluster lists. p.mu is held.
func (p *Provider) refuse(e *entry, err error) {
	before := e.refused
	e.refused = keep.Short(err.Error())
	if errors.Is(err, isobar.ErrOwned) { // nothing of it is in force
		e.inForce, e.taken = nil, false
	}
	if before == "" {
		p.warn("the endpoints that Kubernetes lists for a service are refused; the previous ones stay", "service", e.Name, "error", e.refused)
	}
}

// logChange logs changes that operators should see. p.mu is held.
func (p *Provider) logChange(old, e *entry) {
	had := 0
	if old != nil {
		had = old.Counts.LeftOut
	}
	if e.Counts.LeftOut > had {
		p.warn("endpoints of Kubernetes are left out", "service", e.Name, "endpoints", e.Counts.LeftOut, "first", e.Reason)
	}
	if e.Counts.Held > 0 && (old == nil || old.Counts.Held == 0) {
		p.warn("most endpoints of a service stopped being ready at once; they are used where nothing else is left",
			"service", e.Name, "endpoints", e.Counts.Held, "ready", e.Counts.Ready)
	}
}

// WaitAnswered waits until the cluster was listed, if nothing is known from before,
// at most for patience. Without it, clients that come early would find their
// services missing.
func (p *Provider) WaitAnswered(ctx context.Context, patience time.Duration) {
	p.mu.Lock()
	ready := p.cfg == nil || len(p.entries) > 0
	p.mu.Unlock()
	if ready {
		return
	}
	keep.Await(ctx, p.answer, patience, func() {
		p.opts.Log.Warn("the Kubernetes cluster is not listed yet; its services are not served", "waited", patience)
	})
}

// Complete reports whether everything that the cluster has is known, or no cluster is
// configured.
func (p *Provider) Complete() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	since, _ := p.unconfirmed()
	return p.cfg == nil || p.synced && since.IsZero()
}

// show brings metrics, and what waits for the first list, up to date. p.mu is held.
func (p *Provider) show() {
	var list []keep.Outdated
	since, _ := p.unconfirmed()
	if !since.IsZero() {
		for _, name := range slices.Sorted(maps.Keys(p.entries)) {
			list = append(list, keep.Outdated{Service: name, Since: since})
		}
	}
	p.outdated.Set(list)
	p.metrics.show(p)
	if p.synced {
		select {
		case <-p.answer:
		default:
			close(p.answer)
		}
	}
}

// unconfirmed returns since when changes of the cluster may have been missed, and
// why; zero = it is watched. p.mu is held.
func (p *Provider) unconfirmed() (since time.Time, failure string) {
	switch {
	case p.cfg == nil:
		return time.Time{}, ""
	case p.session == nil:
		return p.opened, ""
	}
	since, failure = p.session.lost()
	if p.session.failure != "" {
		failure = p.session.failure
	}
	if !p.synced {
		since = p.opened
	}
	return since, failure
}

// Outdated lists the services whose endpoints may have changed without our
// knowing, sorted. It waits for nobody.
func (p *Provider) Outdated() []keep.Outdated {
	return p.outdated.Get()
}

// warn logs what the API server can trigger, at a bounded rate.
func (p *Provider) warn(msg string, attrs ...any) {
	p.limit.Warn(p.opts.Log, msg, attrs...)
}

// load fills the entries with what was saved.
func (p *Provider) load(ctx context.Context) error {
	data, err := p.saver.Load(ctx)
	if err != nil {
		return fmt.Errorf("loading the saved services of discovery.kubernetes: %w", err)
	}
	if data == nil {
		return nil
	}
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("the saved services of discovery.kubernetes can't be read: %w", err)
	}
	if s.Format > savedFormat {
		return fmt.Errorf("the saved services of discovery.kubernetes were written by a newer version (format %d, this one reads up to %d)", s.Format, savedFormat)
	}
	p.places = s.Nodes
	for _, from := range s.Services {
		var policy *table.Applied
		if f := from.Policy; f != nil {
			policy = &table.Applied{Key: table.Key{Namespace: f.Namespace, Name: f.Name}, Settings: f.Settings}
		}
		p.entries[from.Name] = known(from.Name, from.Localities, policy, from.At)
	}
	return nil
}

// encode returns what is to be saved.
func (p *Provider) encode() (data []byte, empty bool, err error) {
	s := saved{Format: savedFormat, Services: []savedService{}}
	p.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(p.entries)) {
		if e := p.entries[name]; e.taken { // what it holds is never written again, so it is shared
			one := savedService{Name: name, At: e.at, Localities: e.inForce}
			if e.policy != nil {
				one.Policy = &savedPolicy{Namespace: e.policy.Namespace, Name: e.policy.Name, Settings: e.policy.Settings}
			}
			s.Services = append(s.Services, one)
		}
	}
	s.Nodes = p.placesOfNodes()
	p.mu.Unlock()
	data, err = json.Marshal(s)
	return data, len(s.Services) == 0 && len(s.Nodes) == 0, err
}
