package admin

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Degraded is a service for which an input is missing.
type Degraded struct {
	plan.InputState

	Service string `json:"service"`
	Reason  string `json:"reason"`
	Binds   bool   `json:"binds"` // false: its mode, or its policy, does not look at what is missing
}

// degraded tells of the input of a service that is most degraded.
func (b *statusBuilder) degraded(svc *plan.Service) {
	worst, ok := svc.Degraded()
	if !ok {
		return
	}
	if len(b.Degraded) < maxHolds {
		b.Degraded = append(b.Degraded, Degraded{InputState: worst, Service: svc.Spec.Name, Reason: worst.String(), Binds: svc.Bound()})
	}
	if svc.Bound() && worst.Level != plan.LevelHeld { // a hold has an attention item of its own
		b.aboutf(svc, InputMissing, isobar.Locality{}, "%s: %s", worst, worst.Level.Effect())
	}
}
