package member

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
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
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

// Operated holds what operators wrote: this replica's copy of the objects in the engine.
type Operated struct {
	registry  *discovery.Registry
	inCluster bool  // whether services are written by kubectl
	self      *self // nil before this replica takes part in its group

	mu       sync.Mutex // held during a write
	sequence uint64
	shown    atomic.Uint64 // sequence, for plans
	pauses   map[string][]byte
	// known says that the leader's last write or read tells what the engine has. After a
	// write whose outcome is unknown it does not.
	known bool
}

// NewOperated returns where a member of the group of a configuration writes what operators
// want. It refuses writes before the server has joined.
func NewOperated(c *config.Replicas) *Operated { return &Operated{inCluster: c.Kubernetes != nil} }

// isKnown reports whether this replica knows the objects in the engine.
func (o *Operated) isKnown() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known
}

// last returns the number of the last write, and whether it is known what the engine has.
func (o *Operated) last() (sequence uint64, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sequence, o.known
}

// forget notes that the engine has writes after the given one that this replica does not
// know, unless this replica has read or written since.
func (o *Operated) forget(sequence uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = o.known && o.sequence != sequence
}

// begin notes that it is not known what the engine has, and returns what it had last.
func (o *Operated) begin() (sequence uint64, pauses map[string][]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = false
	return o.sequence, maps.Clone(o.pauses)
}

// recalled notes what the engine has.
func (o *Operated) recalled(sequence uint64, pauses map[string][]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sequence, o.pauses, o.known = sequence, pauses, true
	o.shown.Store(sequence)
}

// Write implements [discovery.Shared].
func (o *Operated) Write(ctx context.Context, changes []discovery.SharedChange) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := make([]engine.Change, len(changes))
	for i := range changes {
		if o.inCluster && changes[i].Data != nil && discovery.OfService(changes[i].Key) {
			return fmt.Errorf("%w: this group keeps its state in Kubernetes, where services are written by kubectl: apply Services and LoadBalancingPolicies",
				isobar.ErrInvalid)
		}
		list[i] = engine.Change{Key: changes[i].Key, Data: changes[i].Data}
	}
	return o.write(ctx, list)
}

// write writes while this replica leads. o.mu is held.
func (o *Operated) write(ctx context.Context, changes []engine.Change) error {
	if o.self == nil {
		return fmt.Errorf("%w: this replica does not take part in its group yet", isobar.ErrUnavailable)
	}
	if err := o.self.explained(o.self.leading()); err != nil {
		return fmt.Errorf("%w: %w", isobar.ErrUnavailable, err)
	}
	if !o.known {
		return fmt.Errorf("%w: the election engine has not told yet what operators wrote", isobar.ErrUnavailable)
	}
	err := o.self.WriteOperators(ctx, o.sequence, o.sequence+1, changes)
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
func (o *Operated) Force(ctx context.Context, changes []discovery.SharedChange) error {
	if o.self == nil {
		return fmt.Errorf("%w: this replica does not take part in its group yet", isobar.ErrUnavailable)
	}
	last, err := o.self.LastWrite(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", isobar.ErrUnavailable, err)
	}
	if base := o.self.base(); base != nil && base.operators.Sequence > last {
		return fmt.Errorf("%w: the election engine has lost writes of operators, as after a restore from a backup; the next leader writes them again",
			isobar.ErrUnavailable)
	}
	list := make([]engine.Change, len(changes))
	for i := range changes {
		list[i] = engine.Change{Key: changes[i].Key, Data: changes[i].Data}
	}
	if err := o.self.ForceOperators(ctx, last, list); err != nil {
		return fmt.Errorf("%w: %w", isobar.ErrUnavailable, err)
	}
	return nil
}

// pause writes the pauses of the plan in force, unless the engine has them.
func (o *Operated) pause(ctx context.Context, current func() *plan.Plan) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	next, err := pauseEntries(current().Paused) // the newest, whichever operator came first
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

// pauseKey is the key of the pause of a service, or of all services for an empty name.
func pauseKey(service string) string {
	if service == "" {
		return pauseAll
	}
	return pausePrefix + url.PathEscape(service)
}

func pauseEntries(p plan.Pauses) (map[string][]byte, error) {
	out := make(map[string][]byte, len(p))
	for _, x := range p {
		key := pauseKey(x.Service)
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
		err := json.Unmarshal(entries[key], &e)
		if err != nil { // a later format may have other types
			_ = json.Unmarshal(entries[key], &struct {
				Format *int `json:"format"`
			}{&e.Format})
		}
		if e.Format > pauseFormat {
			return nil, nil, fmt.Errorf("entry %s has format %d, this program reads up to %d: %w", key, e.Format, pauseFormat, group.ErrNewerFormat)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("entry %s can't be read: %w", key, err)
		}
		if e.Format < 1 || key != pauseKey(e.Pause.Service) {
			return nil, nil, fmt.Errorf("entry %s can't be read: it has format %d and the service %q", key, e.Format, e.Pause.Service)
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

// written is what operators wrote, as the engine has it or as plans told.
type written = engine.Written

// toProto returns what operators wrote as it goes with a plan.
func (o *Operated) toProto() (*peerv1.Operators, error) {
	sequence := o.shown.Load()
	marks, err := o.registry.Marks()
	if err != nil || sequence == 0 {
		return nil, err
	}
	out := &peerv1.Operators{Sequence: sequence}
	for _, key := range slices.Sorted(maps.Keys(marks)) {
		out.Entries = append(out.Entries, &peerv1.OperatorEntry{Key: key, Data: marks[key]})
	}
	return out, nil
}

func operatorsFromProto(m *peerv1.Operators) written {
	out := written{Sequence: m.GetSequence(), Entries: make(map[string][]byte, len(m.GetEntries()))}
	for _, e := range m.GetEntries() {
		out.Entries[e.GetKey()] = e.GetData()
	}
	return out
}
