package kubernetes

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/isobar-xds/isobar/internal/replica/group"
)

// presentKey is the annotation of the Lease in which replicas that do not lead leave how
// many of the group they reach, for a leader that is cut off from them: a [present] by
// name.
const presentKey = "isobar.dev/present"

// present is the entry of one replica. Beat differs with each confirmation: a reader measures by
// its own clock how old one is.
type present struct {
	Reaches int    `json:"reaches"`
	Beat    string `json:"beat"`
}

// sighting is an engine's reading of another replica's entry.
type sighting struct {
	last present
	at   time.Time // when it was first read so; zero = before this engine looked
}

func decodePresent(text string) (map[string]present, error) {
	if text == "" {
		return map[string]present{}, nil
	}
	var out map[string]present
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", presentKey, err)
	}
	if len(out) > group.MaxReplicas {
		return nil, fmt.Errorf("annotation %s has %d replicas, at most %d are allowed", presentKey, len(out), group.MaxReplicas)
	}
	return out, nil
}

// sight records the entries of the others. e.observing is held.
func (e *Engine) sight(s *state, now time.Time) {
	first := e.sightings == nil
	before := e.sightings
	e.sightings = make(map[string]sighting, len(s.present))
	for name, p := range s.present { //isobar:sorted each by itself
		is, known := before[name]
		if !known || is.last != p {
			is = sighting{last: p, at: now}
			if first {
				is.at = time.Time{}
			}
		}
		e.sightings[name] = is
	}
}

// presences returns the entries of the others within the time of the lease, sorted by name.
func (e *Engine) presences(now time.Time) (out []group.Presence) {
	e.observing.Lock()
	defer e.observing.Unlock()
	for _, name := range slices.Sorted(maps.Keys(e.sightings)) {
		is := e.sightings[name]
		if age := now.Sub(is.at); name != e.opts.Self.Name && age < e.opts.Duration {
			out = append(out, group.Presence{Name: name, Reaches: is.last.Reaches, Age: age})
		}
	}
	return out
}

// announced returns the Lease with the number of replicas that this one reaches; false if its
// entry already says that and is young enough.
func (e *Engine) announced(s *state, reaches int, now time.Time) (*coordinationv1.Lease, bool, error) {
	left, is := s.present[e.opts.Self.Name]
	if reaches < 1 || is && left == e.left && left.Reaches == reaches && now.Sub(e.leftAt) < e.opts.Duration/3 {
		return s.lease, false, nil
	}
	all := maps.Clone(s.present)
	e.beats++
	e.left, e.leftAt = present{reaches, strconv.FormatUint(e.opts.Self.Incarnation, 16) + "." + strconv.FormatUint(e.beats, 10)}, now
	all[e.opts.Self.Name] = e.left
	next := s.lease.DeepCopy()
	return next, true, setPresent(next, all)
}

// forget removes from a Lease the entry of this replica, which leads, and old entries of others.
func (e *Engine) forget(next *coordinationv1.Lease, s *state, now time.Time) error {
	all := maps.Clone(s.present)
	delete(all, e.opts.Self.Name)
	e.observing.Lock()
	for name, is := range e.sightings { //isobar:sorted each by itself
		if !is.at.IsZero() && now.Sub(is.at) > 2*e.opts.Duration {
			delete(all, name)
		}
	}
	e.observing.Unlock()
	if maps.Equal(all, s.present) {
		return nil
	}
	return setPresent(next, all)
}

func setPresent(l *coordinationv1.Lease, all map[string]present) error {
	l.Annotations = maps.Clone(l.Annotations)
	if len(all) == 0 {
		delete(l.Annotations, presentKey)
		return nil
	}
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	text, err := json.Marshal(all)
	l.Annotations[presentKey] = string(text)
	return err
}
