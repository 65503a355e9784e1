package health

import "time"

// Age is how long ago the vote was last heard; 0 if never.
func (v *Vote) Age(now time.Time) time.Duration {
	if v.Heard.IsZero() {
		return 0
	}
	return max(0, now.Sub(v.Heard))
}

// Verdicts returns the verdicts of checkers in the table.
func (t Table) Verdicts() *Verdicts { return t.verdicts }
