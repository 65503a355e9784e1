package isobar

// Promotion says when a service in mode auto goes a step further, from observe
// to bounded to full, and when it goes a step back. Zero fields stand for the
// defaults.
type Promotion struct {
	// Score is the least score of a window that speaks for a step further, (0, 1].
	Score float64 `json:"score,omitempty"`
	// Rollback is the score of a window below which the service goes a step back;
	// below Score.
	Rollback float64 `json:"rollback,omitempty"`
	// Windows is how many windows in a row it takes for a step further; each step
	// back that was not made good for doubles it.
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
