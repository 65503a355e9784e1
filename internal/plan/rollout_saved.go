package plan

import (
	"math"

	"github.com/isobar-xds/isobar"
)

// rolloutFormat is the version of SavedRollout. What another one wrote is not
// believed: mode auto restarts then, with observe.
const rolloutFormat = 1

// SavedRollout is how far mode auto has come, as it survives a restart.
type SavedRollout struct {
	Rollout

	Format int `json:"format"`
}

func (t *Rollout) save() *SavedRollout {
	if t == nil {
		return nil
	}
	return &SavedRollout{Format: rolloutFormat, Rollout: *t}
}

// revive returns the rollout state that was saved; nil where it is none.
func (s *SavedRollout) revive() *Rollout {
	if s == nil || s.Format != rolloutFormat || s.Mode > isobar.ModeObserve {
		return nil
	}
	t := s.Rollout
	for _, n := range []*int{&t.Good, &t.Failed, &t.Calm, &t.Trial, &t.Promoted, &t.Demoted} {
		*n = min(max(0, *n), math.MaxInt32)
	}
	for _, v := range []*float64{&t.Before.Errors, &t.Before.Over} {
		if *v != *v {
			*v = 0
		}
		*v = clamp(*v, 1)
	}
	return &t
}
