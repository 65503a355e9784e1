package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

// What operators write stands in the election engine: services of the API and marks of
// health, whose entries package discovery makes, and pauses. The leader writes, and
// hands the marks on with its plans.

const (
	pausePrefix = "pauses/"   // SERVICE
	pauseAll    = "pause-all" // of all services together
	pauseFormat = 1
)

type pauseEntry struct {
	Format int        `json:"format"`
	Pause  plan.Pause `json:"pause"`
}

// operated is what operators wrote, as this replica knows it to stand in the engine.
type operated struct {
	s *Server

	mu       sync.Mutex // held during a write
	sequence uint64
	shown    atomic.Uint64 // sequence, for plans
	pauses   map[string][]byte
	// known says that the leader's last write or read tells what the engine has. After a
	// write whose outcome is unknown it does not.
	known bool
}

// shared is where the registry shares what operators write; nil for a server that is
// alone.
func (s *Server) shared() discovery.Shared {
	if s.fixed.Replicas == nil {
		return nil
	}
	s.operated.s = s
	return &s.operated
}

// settled reports whether it is known what the engine has.
func (o *operated) settled() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known
}

// Write implements [discovery.Shared].
func (o *operated) Write(ctx context.Context, changes []discovery.SharedChange) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := make([]engine.Change, len(changes))
	for i := range changes {
		if o.s.fixed.Replicas.Kubernetes != nil && changes[i].Data != nil && discovery.OfService(changes[i].Key) {
			return fmt.Errorf("%w: this group keeps its state in Kubernetes, where services are written by kubectl: apply Services and LoadBalancingPolicies",
				isobar.ErrInvalid)
		}
		list[i] = engine.Change{Key: changes[i].Key, Data: changes[i].Data}
	}
	return o.write(ctx, list)
}

// write writes while this replica leads. o.mu is held.
func (o *operated) write(ctx context.Context, changes []engine.Change) error {
	r := o.s.replicas
	if r == nil {
		return fmt.Errorf("%w: this replica does not take part in its group yet", isobar.ErrUnavailable)
	}
	if err := r.explained(r.leading()); err != nil {
		return fmt.Errorf("%w: %w", isobar.ErrUnavailable, err)
	}
	if !o.known {
		return fmt.Errorf("%w: the election engine has not told yet what operators wrote", isobar.ErrUnavailable)
	}
	err := r.replica.WriteOperators(ctx, o.sequence, o.sequence+1, changes)
	switch {
	case err == nil:
		o.sequence++
		o.shown.Store(o.sequence)
		return nil
	case errors.Is(err, engine.ErrTooLarge):
		return fmt.Errorf("%w: %w", isobar.ErrInvalid, err)
	case errors.Is(err, engine.ErrNotLeading):
		return fmt.Errorf("%w: %w", isobar.ErrUnavailable, err)
	}
	o.known = false // it may have happened
	if errors.Is(err, engine.ErrStale) {
		return fmt.Errorf("%w: %w", isobar.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: whether it was written is unknown: %w", isobar.ErrUnavailable, err)
}

// Force implements [discovery.Shared].
func (o *operated) Force(ctx context.Context, changes []discovery.SharedChange) error {
	r := o.s.replicas
	if r == nil {
		return fmt.Errorf("%w: this replica does not take part in its group yet", isobar.ErrUnavailable)
	}
	last, err := r.replica.LastWrite(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", isobar.ErrUnavailable, err)
	}
	if base := r.base(); base != nil && base.operators.Sequence > last {
		return fmt.Errorf("%w: the election engine has lost writes of operators, as after a restore from a backup; the next leader writes them again",
			isobar.ErrUnavailable)
	}
	list := make([]engine.Change, len(changes))
	for i := range changes {
		list[i] = engine.Change{Key: changes[i].Key, Data: changes[i].Data}
	}
	if err := r.replica.ForceOperators(ctx, last, list); err != nil {
		return fmt.Errorf("%w: %w", isobar.ErrUnavailable, err)
	}
	return nil
}

// leading returns an error unless this replica leads.
func (r *replicas) leading() error {
	if role, _ := r.replica.Role(); role != group.Leading {
		return group.ErrNotLeading
	}
	return nil
}

// Paused implements [control.Group].
func (r *replicas) Paused(ctx context.Context) error {
	o := &r.s.operated
	o.mu.Lock()
	defer o.mu.Unlock()
	next, err := pauseEntries(r.s.loop.Current().Paused) // the newest, whichever operator came first
	if err != nil {
		return err
	}
	changes := difference(o.pauses, next)
	if len(changes) == 0 {
		return nil
	}
	if err := o.write(ctx, changes); err != nil {
		return err
	}
	o.pauses = next
	return nil
}

func pauseEntries(p plan.Pauses) (map[string][]byte, error) {
	out := make(map[string][]byte, len(p))
	for _, x := range p {
		key := pausePrefix + url.PathEscape(x.Service)
		if x.Service == "" {
			key = pauseAll
		}
		data, err := json.Marshal(pauseEntry{Format: pauseFormat, Pause: x})
		if err != nil {
			return nil, err
		}
		out[key] = data
	}
	return out, nil
}

// pausesOf reads the pauses among entries, and returns their entries, too.
func pausesOf(entries map[string][]byte) (plan.Pauses, map[string][]byte, error) {
	var out plan.Pauses
	own := map[string][]byte{}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if key != pauseAll && !strings.HasPrefix(key, pausePrefix) {
			continue
		}
		var e pauseEntry
		if err := json.Unmarshal(entries[key], &e); err != nil {
			return nil, nil, fmt.Errorf("entry %s can't be read: %w", key, err)
		}
		if e.Format > pauseFormat {
			return nil, nil, fmt.Errorf("entry %s has format %d, this program reads up to %d: %w", key, e.Format, pauseFormat, group.ErrNewerFormat)
		}
		out = out.With(e.Pause)
		own[key] = entries[key]
	}
	return out, own, nil
}

// difference lists what makes one set of entries another, sorted by key.
func difference(have, want map[string][]byte) []engine.Change {
	var out []engine.Change
	for key, data := range want {
		if old, ok := have[key]; !ok || !bytes.Equal(old, data) {
			out = append(out, engine.Change{Key: key, Data: data})
		}
	}
	for key := range have {
		if _, stays := want[key]; !stays {
			out = append(out, engine.Change{Key: key})
		}
	}
	slices.SortFunc(out, func(a, b engine.Change) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// Assume implements [control.Group].
func (r *replicas) Assume() (*plan.Opened, plan.Pauses, error) {
	r.configuring.Lock()
	defer r.configuring.Unlock()
	role, epoch := r.replica.Role()
	if role != group.Leading {
		return nil, nil, group.ErrNotLeading
	}
	base := r.base()
	paused, err := r.recall(context.Background(), base)
	if err != nil {
		if errors.Is(err, group.ErrNewerFormat) {
			r.replica.Alarm("this program can't read what operators wrote, so another replica has to lead: " + err.Error())
			_, _ = r.replica.StepDown(r.s.fixed.Replicas.Name) // it leads
		}
		return nil, nil, fmt.Errorf("what operators wrote: %w", err)
	}
	r.assumed, r.alone = epoch, 0
	if base == nil {
		return nil, paused, nil
	}
	return base.Opened, paused, nil
}

// recall reads what operators wrote from the engine, and puts it in force. base is the
// plan that a new leader goes on from; a leader that goes on passes nil. r.configuring
// is held.
func (r *replicas) recall(ctx context.Context, base *opened) (plan.Pauses, error) {
	o := &r.s.operated
	o.mu.Lock()
	o.known = false
	kept, pauses := o.sequence, maps.Clone(o.pauses)
	o.mu.Unlock()
	w, err := r.replica.ReadOperators(ctx)
	if err != nil {
		return nil, err
	}
	var file *discovery.Configured // nil: that of now stays
	newer := written{Sequence: kept}
	if r.assumed == 0 || base != nil { // a new leader knows what the plan says
		if file, newer, err = r.inherited(base); err != nil {
			return nil, err
		}
	} else if newer.Entries, err = r.s.registry.Entries(); err != nil {
		return nil, err
	} else {
		maps.Copy(newer.Entries, pauses)
	}
	if w, err = r.restore(ctx, w, newer); err != nil {
		return nil, err
	}
	entries, err := discovery.DecodeShared(w.Entries)
	if err != nil {
		return nil, err
	}
	paused, own, err := pausesOf(w.Entries)
	if err != nil {
		return nil, err
	}
	if err := r.s.registry.Follow(entries, file); err != nil {
		return nil, err
	}
	if file != nil {
		r.beginLeading()
	}
	r.followed = followed{}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sequence, o.pauses, o.known = w.Sequence, own, true
	o.shown.Store(w.Sequence)
	return paused, nil
}

// written is what operators wrote, as the engine has it or as plans told.
type written = engine.Written

// inherited returns the configuration of a new leader, and what the group's plans say
// that operators wrote. Where the group has no plan, that is the state of the single
// server that this replica was. r.configuring is held.
func (r *replicas) inherited(base *opened) (*discovery.Configured, written, error) {
	if base == nil || base.operators.Sequence == 0 {
		entries, err := r.s.registry.Entries()
		if err != nil {
			return nil, written{}, err
		}
		paused := plan.Pauses(nil)
		if base != nil {
			paused = base.Saved.Paused
		} else if single, err := r.s.kept.LoadPlan(); err != nil {
			return nil, written{}, err
		} else if single != nil {
			paused = single.Paused
		}
		pauses, err := pauseEntries(paused)
		if err != nil {
			return nil, written{}, err
		}
		maps.Copy(entries, pauses)
		return r.chosen(base), written{Entries: entries}, nil
	}
	_, api := base.configured()
	entries, err := discovery.ServiceEntries(api)
	if err != nil {
		return nil, written{}, err
	}
	paused, err := pauseEntries(base.Saved.Paused)
	if err != nil {
		return nil, written{}, err
	}
	maps.Copy(entries, paused)
	maps.Copy(entries, base.operators.Entries)
	return r.chosen(base), written{Sequence: base.operators.Sequence, Entries: entries}, nil
}

// chosen is the configuration that a new leader begins with: its own file's where the
// group agrees or the plan was made with the same, else that of the plan. What providers
// list is the plan's; see [replicas.lead]. r.configuring is held.
func (r *replicas) chosen(base *opened) *discovery.Configured {
	own := r.s.offered.Load()
	if base == nil {
		r.inForce = own
		r.digestInForce.Store(&own.digest)
		return &own.Configured
	}
	file, _ := base.configured()
	if r.inForce = nil; r.accepts() || base.digest == own.digest {
		r.inForce = own
		file.Services, file.Network = own.Services, own.Network
	}
	r.digestInForce.Store(new(base.digest))
	if r.inForce != nil {
		r.digestInForce.Store(&own.digest)
	}
	return &file
}

// restore returns what operators wrote. An engine that has less than the group saw, as
// after a restore from a backup, gets it again, and so does one that has nothing yet.
func (r *replicas) restore(ctx context.Context, w, newer written) (written, error) {
	if w.Sequence > 0 && w.Sequence >= newer.Sequence {
		return w, nil
	}
	changes := difference(w.Entries, newer.Entries)
	next := max(w.Sequence, newer.Sequence) + 1
	if err := r.replica.WriteOperators(ctx, w.Sequence, next, changes); err != nil {
		return w, err
	}
	switch {
	case w.Sequence > 0 || newer.Sequence > 0:
		r.replica.Alarm(fmt.Sprintf("the election engine had lost writes of operators, as after a restore from a backup; %d entries are written again: %s",
			len(changes), listed(changes)))
	case len(changes) > 0:
		r.s.log.Info("moved this server's admin API services, health marks and pauses to its group", "entries", len(changes))
	}
	return written{Sequence: next, Entries: newer.Entries}, nil
}

// maxListed bounds the entries that an alarm names.
const maxListed = 20

func listed(changes []engine.Change) string {
	var names []string
	for i := range changes[:min(len(changes), maxListed)] {
		names = append(names, changes[i].Key)
	}
	if len(changes) > maxListed {
		names = append(names, fmt.Sprintf("and %d more", len(changes)-maxListed))
	}
	return strings.Join(names, ", ")
}
