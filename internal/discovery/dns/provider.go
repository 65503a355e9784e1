package dns

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/keep"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// Provider resolves names. Open, then Configure, then Run.
type Provider struct {
	opts     Options
	metrics  *metrics
	resolver *resolver
	system   systemServers
	saver    *keep.Saver
	limit    rpc.LogLimit // of what servers can trigger

	changed chan struct{} // the configuration has changed; room for one signal

	outdated atomic.Pointer[[]keep.Outdated] // as the table said last; nil before Configure

	mu     sync.Mutex // guards all below
	cfg    *Config    // nil = no names are resolved
	table  table
	answer chan struct{} // closed when every service is known, or was asked for
}

// Open loads what was resolved last. Nothing is asked and nothing handed over
// before [Provider.Configure] and [Provider.Run].
func Open(ctx context.Context, o Options) (*Provider, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	p := &Provider{
		opts: o, changed: make(chan struct{}, 1), answer: make(chan struct{}),
		system: systemServers{path: o.ResolvConf},
	}
	p.saver = keep.NewSaver(o.Store, storeKey, keep.SaverOptions{Encode: p.encode, Log: o.Log, Source: "dns"})
	if err := p.load(ctx); err != nil {
		return nil, err
	}
	p.metrics = newMetrics(o.Registerer)
	p.resolver = &resolver{dial: o.Dial, slots: make(chan struct{}, maxQuestions), questions: p.metrics.question}
	return p, nil
}

// Configure changes which names are resolved; nil = none any more. It hands all
// services of which endpoints are known to put, and the others, with the lock
// held that keeps others from coming between. An error of put refuses the
// configuration.
//
// A service whose endpoints came from the file or from another provider until now
// begins with those: it is not empty until the first answer.
func (p *Provider) Configure(cfg *Config, put func(listed, unknown []isobar.Service) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	next := p.table.configured(cfg, p.seed, now)
	listed, unknown := next.listed()
	if err := put(listed, unknown); err != nil {
		return err
	}
	next.took(listed)
	if cfg != nil && p.cfg != nil && !sameServers(p.cfg, cfg) { // others may know better
		for _, n := range next.names {
			n.due = now
		}
	}
	p.cfg, p.table = cfg, next
	p.show()
	keep.Signal(p.changed)
	p.saver.Changed()
	return nil
}

func sameServers(a, b *Config) bool {
	return slices.Equal(a.Servers, b.Servers) && a.Timeout == b.Timeout
}

// Preview gives what [Provider.Configure] would hand over, and the services of
// which no endpoints are known. Nothing changes.
func (p *Provider) Preview(cfg *Config) (listed, unknown []isobar.Service) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.table.configured(cfg, p.seed, time.Now())
	return next.listed()
}

// seed gives the endpoints that a service has in force, whose names are new here.
func (p *Provider) seed(name string) []isobar.ServiceLocality {
	return keep.Seed(p.opts.Registry.Get, name)
}

// WaitAnswered waits until all names were asked for of every service of which
// nothing was known at the start, at most for patience. Without it, clients that
// come early would find their services missing.
func (p *Provider) WaitAnswered(ctx context.Context, patience time.Duration) {
	p.mu.Lock()
	ready := p.table.answered()
	p.mu.Unlock()
	if ready {
		return
	}
	keep.Await(ctx, p.answer, patience, func() {
		p.opts.Log.Warn("some names of discovery.dns are not resolved yet; serving their services without endpoints", "waited", patience)
	})
}

// Complete reports whether all names were asked for, or none are configured.
func (p *Provider) Complete() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !slices.ContainsFunc(p.table.services, func(s *service) bool { return !s.complete() })
}

// show brings metrics, and what waits for answers, up to what the table says.
// p.mu is held.
func (p *Provider) show() {
	p.table.noteUnconfirmed(time.Now())
	var list []keep.Outdated
	for _, s := range p.table.services {
		if s.known() && !s.unconfirmed.IsZero() {
			list = append(list, keep.Outdated{Service: s.Settings.Name, Since: s.unconfirmed})
		}
	}
	p.outdated.Store(&list)
	p.metrics.show(&p.table)
	if p.table.answered() {
		select {
		case <-p.answer:
		default:
			close(p.answer)
		}
	}
}

// Outdated lists the services some of whose endpoints are the previous ones, sorted:
// no server answers for their names, or answers say that there are none. It
// waits for nobody.
func (p *Provider) Outdated() []keep.Outdated {
	if list := p.outdated.Load(); list != nil {
		return slices.Clone(*list)
	}
	return nil
}

// warn logs what servers can trigger, at a bounded rate.
func (p *Provider) warn(msg string, attrs ...any) {
	skipped, ok := p.limit.Allow(time.Now())
	if !ok {
		return
	}
	if skipped > 0 {
		attrs = append(attrs, "skipped_lines", skipped)
	}
	p.opts.Log.Warn(msg, attrs...) //nolint:sloglint // the callers' are literals
}
