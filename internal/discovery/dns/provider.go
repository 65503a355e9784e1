// Package dns takes endpoints from DNS: it resolves the names that are
// configured for the localities of services, again whenever an answer has run
// out, and hands the services over to the registry.
//
// What was resolved last stays in force while no server answers, over restarts
// too; a name that loses its records keeps its endpoints for a while.
package dns

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

	changed chan struct{} // the configuration has changed; capacity 1

	outdated keep.OutdatedList

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

// Preview returns what [Provider.Configure] would hand over, and the services of
// which no endpoints are known. Nothing changes.
func (p *Provider) Preview(cfg *Config) (listed, unknown []isobar.Service) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.table.configured(cfg, p.seed, time.Now())
	return next.listed()
}

// seed returns the endpoints that a service has in force, whose names are new here.
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
	p.outdated.Set(list)
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
	return p.outdated.Get()
}

// warn logs what servers can trigger, at a bounded rate.
func (p *Provider) warn(msg string, attrs ...any) {
	p.limit.Warn(p.opts.Log, msg, attrs...)
}

// Family says which addresses of a host are endpoints.
type Family uint8

// The families.
const (
	Auto Family = iota // IPv4; IPv6 of hosts that have no IPv4 address
	IPv4
	IPv6
)

// Lookup is a name to resolve. It is comparable: two that are equal get the same
// answer.
type Lookup struct {
	Name   string // without the dot at its end
	SRV    bool   // Name has SRV records, which say where the hosts are; else it is a host
	Port   uint16 // of a host
	Family Family
}

// Config says what to resolve where. It is not changed after it was handed over.
type Config struct {
	Servers   []string      // IP:port; empty = those of the system's resolv.conf
	MinTTL    time.Duration // an answer counts at least for so long
	Timeout   time.Duration // of one question to one server
	EmptyHold time.Duration // for how long a name that loses its records keeps its endpoints; 0 = not at all
	Services  []Service     // their names are unique
}

// Service is what to resolve for one service, and what is configured beside it.
type Service struct {
	Settings isobar.Service // its localities have no endpoints
	// Lookups has those of each locality of Settings, in the same order.
	Lookups [][]Lookup
}

// Registry is where the services go.
type Registry interface {
	// PutListed replaces some services, or adds them.
	PutListed(services []isobar.Service) error
	// Get returns the object in force under a name, or isobar.ErrNotFound.
	Get(name string) (isobar.Object, error)
}

// Options of [Open]. Registry and Store are required.
type Options struct {
	Registry   Registry
	Store      keep.Store
	ResolvConf string                // the system's file; empty = /etc/resolv.conf
	Log        *slog.Logger          // nil = none
	Registerer prometheus.Registerer // nil = no metrics
	// Dial opens the connection to a server; nil = the system's. Over what is no
	// packet connection, messages have their length before them, as over TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (o Options) complete() (Options, error) {
	if o.Registry == nil || o.Store == nil {
		return o, errors.New("dns: Registry and Store must be given")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.ResolvConf = cmp.Or(o.ResolvConf, "/etc/resolv.conf")
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	return o, nil
}

const (
	storeKey = "dns-source"
	// savedFormat is the version of saved; a newer one is refused.
	savedFormat = 1
)

// saved is what is known of the names.
type saved struct {
	Format int         `json:"format"`
	Names  []savedName `json:"names"` // sorted
}

type savedName struct {
	Name      string            `json:"name"`
	SRV       bool              `json:"srv,omitempty"`
	Port      uint16            `json:"port,omitempty"`
	Family    Family            `json:"family,omitempty"`
	At        time.Time         `json:"at,omitzero"`
	Endpoints []isobar.Endpoint `json:"endpoints"`
}

// load fills the table with what was saved; it is configured later.
func (p *Provider) load(ctx context.Context) error {
	data, err := p.saver.Load(ctx)
	if err != nil {
		return fmt.Errorf("loading the saved services of discovery.dns: %w", err)
	}
	if data == nil {
		return nil
	}
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("the saved services of discovery.dns can't be read: %w", err)
	}
	if s.Format > savedFormat {
		return fmt.Errorf("the saved services of discovery.dns were written by a newer version (format %d, this one reads up to %d)", s.Format, savedFormat)
	}
	for _, from := range s.Names {
		if len(from.Endpoints) == 0 {
			continue
		}
		p.table.names = append(p.table.names, &name{
			Lookup: Lookup{Name: from.Name, SRV: from.SRV, Port: from.Port, Family: from.Family},
			known:  true, endpoints: from.Endpoints, at: from.At,
		})
	}
	slices.SortStableFunc(p.table.names, func(a, b *name) int { return compareLookups(a.Lookup, b.Lookup) })
	return nil
}

// encode returns what is to be saved.
func (p *Provider) encode() (data []byte, empty bool, err error) {
	s := saved{Format: savedFormat, Names: []savedName{}}
	p.mu.Lock()
	for _, n := range p.table.names {
		if len(n.endpoints) > 0 { // they are never written again, so they are shared
			s.Names = append(s.Names, savedName{Name: n.Name, SRV: n.SRV, Port: n.Port, Family: n.Family, At: n.at, Endpoints: n.endpoints})
		}
	}
	p.mu.Unlock()
	data, err = json.Marshal(s)
	return data, len(s.Names) == 0, err
}

// State of a name.
type State string

// The states.
const (
	Waiting State = "waiting" // no endpoints are known, and no server has answered
	Current State = "current" // as the last answer has it
	Kept    State = "kept"    // as it was known before: no server has answered since
	Held    State = "held"    // there are no records any more; the endpoints stay for now
	Empty   State = "empty"   // there are no records
)

var states = [...]State{Waiting, Current, Kept, Held, Empty}

func (n *name) state() State {
	switch {
	case !n.emptySince.IsZero():
		return Held
	case len(n.endpoints) == 0 && n.answered:
		return Empty
	case len(n.endpoints) == 0:
		return Waiting
	case !n.answered:
		return Kept
	default:
		return Current
	}
}

// Status is the state of everything, for operators.
type Status struct {
	Servers  []string        `json:"servers"`
	System   bool            `json:"system"`            // the servers are those of the system's file
	Failure  string          `json:"failure,omitempty"` // why the servers are not known
	Services []ServiceStatus `json:"services"`          // sorted by name
}

// ServiceStatus is the state of one service.
type ServiceStatus struct {
	Name        string         `json:"name"`
	Endpoints   int            `json:"endpoints"`
	Unconfirmed time.Time      `json:"doubtful_since,omitzero"` // since when some of them are not as DNS says
	Refused     string         `json:"refused,omitempty"`       // why what DNS lists is not in force
	LeftOut     int            `json:"left_out,omitempty"`      // endpoints that the service has already, or too many
	Reason      string         `json:"left_out_reason,omitempty"`
	Lookups     []LookupStatus `json:"lookups"` // in the order of the configuration
}

// LookupStatus is the state of one name.
type LookupStatus struct {
	Locality   isobar.Locality `json:"locality"`
	Name       string          `json:"name"`
	SRV        bool            `json:"srv,omitempty"`
	State      State           `json:"state"`
	Resolved   time.Time       `json:"resolved,omitzero"` // when the endpoints were resolved
	Due        time.Time       `json:"due,omitzero"`      // when it is asked for again
	Endpoints  int             `json:"endpoints"`
	EmptySince time.Time       `json:"empty_since,omitzero"`      // of state held
	Failure    string          `json:"failure,omitempty"`         // why the last attempt gave no answer, or one that lacks a host
	LeftOut    int             `json:"left_out,omitempty"`        // records that can't be used
	Reason     string          `json:"left_out_reason,omitempty"` // of the first of them
}

// Status returns how things stand; false when no names are resolved.
func (p *Provider) Status() (Status, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg == nil {
		return Status{}, false
	}
	s := Status{Servers: p.cfg.Servers, Services: make([]ServiceStatus, 0, len(p.table.services))}
	if len(s.Servers) == 0 {
		s.System = true
		servers, err := p.system.list()
		s.Servers = append([]string{}, servers...)
		if err != nil {
			s.Failure = err.Error()
		}
	}
	for _, svc := range p.table.services {
		s.Services = append(s.Services, svc.status())
	}
	return s, true
}

func (s *service) status() ServiceStatus {
	out := ServiceStatus{
		Name: s.Settings.Name, Unconfirmed: s.unconfirmed, Refused: s.refused, LeftOut: s.leftOut, Reason: s.reason, Lookups: []LookupStatus{},
	}
	for i, names := range s.names {
		for _, n := range names {
			out.Endpoints += len(n.endpoints)
			out.Lookups = append(out.Lookups, LookupStatus{
				Locality: s.Settings.Localities[i].Locality, Name: n.Name, SRV: n.SRV, State: n.state(), Resolved: n.at, Due: n.due,
				Endpoints: len(n.endpoints), EmptySince: n.emptySince, Failure: n.failure, LeftOut: n.last.leftOut, Reason: n.last.reason,
			})
		}
	}
	out.Endpoints -= s.leftOut
	return out
}
