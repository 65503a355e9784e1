package health

import (
	"time"

	"github.com/isobar-xds/isobar"
)

// Age is how long ago the vote was last heard; 0 if never.
func (v *Vote) Age(now time.Time) time.Duration {
	if v.Heard.IsZero() {
		return 0
	}
	return max(0, now.Sub(v.Heard))
}

// Verdicts returns the verdicts of checkers in the table.
func (t Table) Verdicts() *Verdicts { return t.verdicts }

// Status returns the verdict on an endpoint, false if there is none. An endpoint
// that waits for its first verdict is unhealthy.
func (v *Verdicts) Status(service, address string) (isobar.HealthStatus, bool) {
	b, found := v.service(service).belief(address)
	return b.status, found
}
