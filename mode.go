package isobar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Mode says how much of what Isobar computes it also serves.
type Mode uint8

// The modes.
const (
	// ModeFull serves what the solver wants, paced.
	ModeFull Mode = iota
	// ModeBounded moves at most MaxShift away from the baseline.
	ModeBounded
	// ModeObserve serves the baseline and computes beside it.
	ModeObserve
	// ModeAuto begins with observe and goes on to bounded and full while what is
	// seen agrees with what was predicted; see [Promotion].
	ModeAuto
)

// ErrBadMode is wrapped by the errors of [ParseMode].
var ErrBadMode = errors.New("bad mode")

var modeNames = [...]string{"full", "bounded", "observe", "auto"}

// ParseMode reads "full", "bounded", "observe" or "auto".
func ParseMode(s string) (Mode, error) {
	if i := slices.Index(modeNames[:], s); i >= 0 {
		return Mode(i), nil //nolint:gosec // i < 4
	}
	return ModeFull, fmt.Errorf("%w %q: want one of %s", ErrBadMode, s, strings.Join(modeNames[:], ", "))
}

// String returns the mode's name.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// MarshalText returns the name, for JSON.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (m *Mode) UnmarshalText(b []byte) error {
	v, err := ParseMode(string(b))
	if err != nil {
		return err
	}
	*m = v
	return nil
}

// Promotion says when a service in mode auto goes a step forward, from observe to bounded to full,
// and when it goes a step back. Zero fields stand for the defaults.
type Promotion struct {
	// Score is the lowest score of a window that counts towards a step forward, (0, 1].
	Score float64 `json:"score,omitempty"`
	// Rollback is the score of a window below which the service goes a step back;
	// below Score.
	Rollback float64 `json:"rollback,omitempty"`
	// Windows is the number of consecutive windows for a step forward; each step back doubles it
	// until good windows compensate for it.
	Windows int `json:"windows,omitempty"`
	// Until is the furthest mode: full or bounded.
	Until Mode `json:"until,omitzero"`
}

// Defaults of a Promotion.
const (
	DefaultPromotionScore   = 0.95
	DefaultRollbackScore    = 0.85
	DefaultPromotionWindows = 20
)

// WithDefaults fills in what is not set. A score or rollback that is set keeps
// the other one away from it.
func (p Promotion) WithDefaults() Promotion {
	if p.Score == 0 {
		p.Score = max(DefaultPromotionScore, (1+p.Rollback)/2)
	}
	if p.Rollback == 0 {
		p.Rollback = min(DefaultRollbackScore, 0.9*p.Score)
	}
	if p.Windows == 0 {
		p.Windows = DefaultPromotionWindows
	}
	return p
}
