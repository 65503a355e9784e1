package plan

import (
	"math"

	"github.com/isobar-xds/isobar"
)

// trustFormat is the version of SavedTrust. What another one wrote is not
// believed: mode auto begins anew then, with observe.
const trustFormat = 1

// SavedTrust is how far mode auto has come, as it survives a restart.
type SavedTrust struct {
	Trust

	Format int `json:"format"`
}

func (t *Trust) save() *SavedTrust {
	if t == nil {
		return nil
	}
	return &SavedTrust{Format: trustFormat, Trust: *t}
}

// revive gives the trust that was saved; nil where it is none.
func (s *SavedTrust) revive() *Trust {
	if s == nil || s.Format != trustFormat || s.Mode > isobar.ModeObserve {
		return nil
	}
	t := s.Trust
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
