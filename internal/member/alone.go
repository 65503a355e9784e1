package member

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/plural"
	"github.com/isobar-xds/isobar/internal/replica"
)

// A server that was a replica may serve alone for a time, and come back. What operators
// write meanwhile goes with it into the group if the group has had no write since it left.

const (
	// aloneKey notes that a server that was a replica has served alone since.
	aloneKey    = "alone"
	aloneFormat = 1
	// singleKey has what operators wrote before the server was a replica.
	singleKey = "sources-alone"
)

// leftGroup is the note of a server that was a replica.
type leftGroup struct {
	Format int    `json:"format"`           // 0 = it belongs to a group again
	Digest string `json:"digest,omitempty"` // of what operators had written when it left
}

// Alone notes that a server serves without a group, if it was a replica before.
func Alone(kept State, registry *discovery.Registry) error {
	if joined, err := kept.Read(replicaKey); err != nil || joined == nil {
		return err
	}
	left, err := loadLeft(kept)
	if err != nil || left != nil {
		return err
	}
	single, err := kept.LoadPlan()
	if err != nil {
		return err
	}
	entries, err := ownEntries(registry, single)
	if err != nil {
		return err
	}
	data, err := json.Marshal(leftGroup{aloneFormat, digestOf(entries)})
	if err != nil {
		return err
	}
	return kept.Write(aloneKey, data)
}

// loadLeft returns the note of a server that has served alone since it was a replica; nil
// where it has not.
func loadLeft(kept State) (*leftGroup, error) {
	data, err := kept.Read(aloneKey)
	if err != nil || data == nil {
		return nil, err
	}
	var left leftGroup
	if err := json.Unmarshal(data, &left); err != nil {
		return nil, fmt.Errorf("state %q can't be read: %w", aloneKey, err)
	}
	if left.Format == 0 {
		return nil, nil //nolint:nilnil // as where nothing is noted
	}
	return &left, nil
}

// ownEntries returns what operators wrote on a single server, by key. single is its plan.
func ownEntries(registry *discovery.Registry, single *plan.Saved) (map[string][]byte, error) {
	entries, err := registry.Entries()
	if err != nil || single == nil {
		return entries, err
	}
	pauses, err := pauseEntries(single.Paused)
	maps.Copy(entries, pauses)
	return entries, err
}

// digestOf names entries.
func digestOf(entries map[string][]byte) string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		_, _ = fmt.Fprintf(h, "%q %q\n", key, entries[key]) // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil))
}

// before is what operators had written on this server when it joined the group.
type before struct {
	entries map[string][]byte
	// left names what operators had written when it left the group; "" = it was no replica.
	left string
}

// wrote reports whether operators wrote something while the server was alone.
func (b *before) wrote() bool {
	if b.left == "" {
		return len(b.entries) > 0
	}
	return b.left != digestOf(b.entries)
}

// keepSingle returns what operators wrote while this server was alone, and keeps a copy of
// it; nil where the server was a replica when it ended last. A server that was alone goes on
// from its own plan, and forgets the one that it has of the group.
func (d disk) keepSingle(registry *discovery.Registry, single *plan.Saved) (*before, error) {
	joined, err := d.LoadReplica()
	if err != nil {
		return nil, err
	}
	left, err := loadLeft(d.state)
	if err != nil || joined != nil && left == nil {
		return nil, err
	}
	entries, err := ownEntries(registry, single)
	if err != nil {
		return nil, err
	}
	b := &before{entries: entries}
	if left != nil {
		b.left = left.Digest
		if err := replica.ForgetPlan(d); err != nil {
			return nil, err
		}
	}
	if !b.wrote() {
		return b, nil
	}
	texts := make(map[string]json.RawMessage, len(entries))
	for key, data := range entries {
		texts[key] = data
	}
	data, err := json.Marshal(texts)
	if err != nil {
		return nil, err
	}
	return b, d.state.Write(singleKey, data)
}

// bring writes what operators wrote while this server was alone into an engine that has
// nothing else than when the server left the group. base is the plan that another replica
// has: then the group may have gone on without this server. c.mu is held.
func (c *groupConfiguration) bring(ctx context.Context, w written, base *opened) (written, error) {
	b := c.before
	if b == nil || b.left == "" || base != nil || w.Sequence == 0 || digestOf(w.Entries) != b.left {
		return w, nil
	}
	changes := difference(w.Entries, b.entries)
	if len(changes) == 0 {
		return w, nil
	}
	if err := c.self.WriteOperators(ctx, w.Sequence, w.Sequence+1, changes); err != nil {
		return w, err
	}
	c.log.Info("wrote into the group what operators wrote while this server was alone", "entries", len(changes), "keys", listed(changes))
	return written{Sequence: w.Sequence + 1, Entries: maps.Clone(b.entries)}, nil
}

// settle notes that what the group has replaces what this server had when it joined. It
// tells operators if the group has something else. c.mu is held.
func (c *groupConfiguration) settle(entries map[string][]byte) {
	b := c.before
	if b == nil {
		return
	}
	if changes := difference(entries, b.entries); b.wrote() && len(changes) > 0 {
		c.self.AlarmOnce(fmt.Sprintf("this replica had services, health marks or pauses of its own when it joined the group, and they are not in force, "+
			"because the group has others: %s (%s). A copy of its own is in its state directory as %s.state",
			plural.Count(len(changes), "entry differs", "entries differ"), listed(changes), singleKey))
	}
	if b.left != "" {
		data, err := json.Marshal(leftGroup{})
		if err == nil {
			err = c.kept.Write(aloneKey, data)
		}
		if err != nil {
			c.log.Error("could not note that this server belongs to its group again", "error", err)
		}
	}
	c.before = nil
}
