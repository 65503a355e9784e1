package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/plural"
	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

// States that a replica raises alarms of.
const (
	alarmOperators = "unreadable writes of operators"
	alarmProviders = "providers"
)

// assume takes over what the group has in force, for the loop of a new leader.
func (c *groupConfiguration) assume() (*plan.Opened, plan.Pauses, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	role, epoch := c.self.Role()
	if role != group.Leading {
		return nil, nil, group.ErrNotLeading
	}
	base := c.self.base()
	paused, err := c.recall(context.Background(), base)
	if err != nil {
		if errors.Is(err, group.ErrNewerFormat) || errors.Is(err, discovery.ErrNewerFormat) {
			c.self.Alarm(alarmOperators, "this program can't read what operators wrote, so another replica has to lead: "+err.Error())
			c.self.HandOver(err.Error())
		}
		return nil, nil, fmt.Errorf("what operators wrote: %w", err)
	}
	c.self.EndAlarm(alarmOperators)
	c.assumed = epoch
	if base == nil {
		return nil, paused, nil
	}
	return base.Opened, paused, nil
}

// recall reads what operators wrote from the engine, and puts it in force. base is the
// plan that a new leader goes on from; a leader that goes on passes nil. c.mu
// is held.
func (c *groupConfiguration) recall(ctx context.Context, base *opened) (plan.Pauses, error) {
	kept, pauses := c.operated.begin()
	w, err := c.self.ReadOperators(ctx)
	if err != nil {
		return nil, err
	}
	var file *discovery.Configured // nil: that of now stays
	newer := written{Sequence: kept}
	if c.assumed == 0 || base != nil { // a new leader knows what the plan says
		if file, newer, err = c.inherited(base); err != nil {
			return nil, err
		}
	} else if newer.Entries, err = c.registry.Entries(); err != nil {
		return nil, err
	} else {
		maps.Copy(newer.Entries, pauses)
	}
	if w, err = c.bring(ctx, w, base); err != nil {
		return nil, err
	}
	if w, err = c.restore(ctx, w, newer); err != nil {
		return nil, err
	}
	if w, err = c.repair(ctx, w, newer); err != nil {
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
	c.settle(w.Entries)
	if err := c.registry.Follow(entries, file); err != nil {
		return nil, err
	}
	if file != nil {
		if err := c.providing.begin(c.inForce != nil); err != nil { // what the plan has stays in force
			c.self.Alarm(alarmProviders, "what the providers of this replica list is not in force: "+err.Error())
		} else {
			c.self.EndAlarm(alarmProviders)
		}
	}
	c.followed = followed{}
	c.operated.recalled(w.Sequence, own)
	return paused, nil
}

// inherited returns the configuration of a new leader, and what the group's plans say
// that operators wrote. Where the group has no plan, that is the state of the single
// server that this replica was. c.mu is held.
func (c *groupConfiguration) inherited(base *opened) (*discovery.Configured, written, error) {
	if base == nil || base.operators.Sequence == 0 {
		entries, err := c.registry.Entries()
		if err != nil {
			return nil, written{}, err
		}
		paused := plan.Pauses(nil)
		if base != nil {
			paused = base.Saved.Paused
		} else if single, err := c.kept.LoadPlan(); err != nil {
			return nil, written{}, err
		} else if single != nil {
			paused = single.Paused
		}
		pauses, err := pauseEntries(paused)
		if err != nil {
			return nil, written{}, err
		}
		maps.Copy(entries, pauses)
		return c.chosen(base), written{Entries: entries}, nil
	}
	entries, err := base.entries()
	if err != nil {
		return nil, written{}, err
	}
	return c.chosen(base), written{Sequence: base.operators.Sequence, Entries: entries}, nil
}

// entries returns what operators wrote, as a plan has it.
func (o *opened) entries() (map[string][]byte, error) {
	_, api := o.configured()
	entries, err := discovery.ServiceEntries(api)
	if err != nil {
		return nil, err
	}
	paused, err := pauseEntries(o.Saved.Paused)
	if err != nil {
		return nil, err
	}
	maps.Copy(entries, paused)
	maps.Copy(entries, o.operators.Entries)
	return entries, nil
}

// chosen is the configuration that a new leader begins with: its own file's where the
// group agrees or the plan was made with the same, else that of the plan. What providers
// list is the plan's; see [providing.lead]. c.mu is held.
func (c *groupConfiguration) chosen(base *opened) *discovery.Configured {
	own := c.offers.own()
	if base == nil {
		c.inForce = own
		c.digestInForce.Store(&own.digest)
		return &own.Configured
	}
	file, _ := base.configured()
	if c.inForce = nil; c.accepts() || base.digest == own.digest {
		c.inForce = own
		file.Services, file.Network = own.Services, own.Network
	}
	c.digestInForce.Store(new(base.digest))
	if c.inForce != nil {
		c.digestInForce.Store(&own.digest)
	}
	return &file
}

// restore returns what operators wrote. An engine that has less than the group saw, as
// after a restore from a backup, gets it again, and so does one that has nothing yet.
func (c *groupConfiguration) restore(ctx context.Context, w, newer written) (written, error) {
	if w.Sequence > 0 && w.Sequence >= newer.Sequence {
		return w, nil
	}
	changes := difference(w.Entries, newer.Entries)
	next := max(w.Sequence, newer.Sequence) + 1
	if err := c.self.WriteOperators(ctx, w.Sequence, next, changes); err != nil {
		return w, err
	}
	switch {
	case w.Sequence > 0 || newer.Sequence > 0:
		c.self.AlarmOnce(fmt.Sprintf("the election engine had lost writes of operators, as after a restore from a backup; %s written again: %s",
			plural.Count(len(changes), "entry is", "entries are"), listed(changes)))
	case len(changes) > 0:
		c.log.Info("moved this server's admin API services, health marks and pauses to its group", "entries", len(changes))
	}
	return written{Sequence: next, Entries: newer.Entries}, nil
}

// repair writes damaged entries again, with the values that the last plan of the group has:
// those that are no JSON objects. It refuses entries that the plan does not have, and objects
// that this program can't read, because another version may have written them.
func (c *groupConfiguration) repair(ctx context.Context, w, newer written) (written, error) {
	var changes []engine.Change
	for _, key := range slices.Sorted(maps.Keys(w.Entries)) {
		err := readable(key, w.Entries[key])
		switch data, known := newer.Entries[key]; {
		case err == nil:
		case json.Unmarshal(w.Entries[key], &map[string]json.RawMessage{}) == nil:
			return w, fmt.Errorf("%w; let a replica of the version that wrote it lead, or %s", err, removeKey)
		case !known || readable(key, data) != nil:
			return w, fmt.Errorf("%w, and no plan of the group has it: %s", err, removeKey)
		default:
			c.log.Error("an entry of the election engine can't be read", "error", err, "data", string(w.Entries[key][:min(maxShown, len(w.Entries[key]))]))
			changes = append(changes, engine.Change{Key: key, Data: data})
		}
	}
	if len(changes) == 0 {
		return w, nil
	}
	if err := c.self.WriteOperators(ctx, w.Sequence, w.Sequence+1, changes); err != nil {
		return w, err
	}
	c.self.AlarmOnce(fmt.Sprintf("the election engine had %s, so check whether something was changed since: %s",
		plural.Count(len(changes), "entry of operators that can't be read; it is written again as the last plan has it",
			"entries of operators that can't be read; they are written again as the last plan has them"), listed(changes)))
	engine.Apply(w.Entries, changes)
	return written{Sequence: w.Sequence + 1, Entries: w.Entries}, nil
}

// removeKey is the last remedy for an entry that can't be read.
const removeKey = "remove its key from the election engine, then order the same again"

// maxShown bounds what the log shows of an entry that can't be read, in bytes.
const maxShown = 200

// readable returns an error if an entry can't be read.
func readable(key string, data []byte) error {
	entry := map[string][]byte{key: data}
	if _, err := discovery.DecodeShared(entry); err != nil {
		return err
	}
	_, _, err := pausesOf(entry)
	return err
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
