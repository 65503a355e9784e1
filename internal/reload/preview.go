package reload

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/providers"
)

// Preview implements [admin.Configuration]: it tells what another configuration file would change. What a reload would
// refuse, it refuses.
func (c *Configuration) Preview(ctx context.Context, body []byte) (plan.Difference, []admin.Problem, error) {
	file, found, err := config.Decode("body", body)
	warnings := problems(found)
	if err != nil {
		return plan.Difference{}, warnings, inputError(err)
	}
	next := &file.Live
	if err := c.lost("body", next); err != nil {
		return plan.Difference{}, warnings, inputError(err)
	}
	services, held := c.previewHeld(next, digestOf(body))
	for _, text := range held {
		warnings = append(warnings, admin.Problem{Error: text})
	}
	provided := c.providers.Preview(next)
	topology, operators, conflicts, err := c.registry.Preview(services, provided, next.Network)
	if err != nil {
		return plan.Difference{}, warnings, inputError(err)
	}
	for _, text := range conflicts {
		warnings = append(warnings, admin.Problem{Error: text})
	}
	for i := range provided {
		for _, svc := range provided[i].Awaited {
			text := "service " + svc.Name + " of discovery." + provided[i].Owner + " has no endpoints before " + providers.Name(provided[i].Owner) +
				" lists them: its clients keep what they have"
			warnings = append(warnings, admin.Problem{Error: text})
		}
	}
	if text := c.outdatedDefaults(next); text != "" {
		warnings = append(warnings, admin.Problem{Error: text})
	}
	d, err := c.loop.Preview(ctx, topology, operators)
	return d, warnings, err
}

// previewHeld lists the services that would be in force with another
// configuration, and says what would be held.
func (c *Configuration) previewHeld(next *config.Live, digest string) (services []isobar.Service, warnings []string) {
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	held, err := c.hold(next, digest)
	if err != nil {
		return next.Services, []string{err.Error()}
	}
	for _, name := range slices.Sorted(maps.Keys(held)) {
		warnings = append(warnings, heldText(&admin.HeldService{Service: name, Rate: held[name].rate, Silent: held[name].silent}, digest))
	}
	return c.withHeld(next, held), warnings
}

// heldText says that a service is held, and what to do.
func heldText(h *admin.HeldService, digest string) string {
	text := fmt.Sprintf("service %s: held: removed from the configuration while clients send %.4g requests/s; it is served as before "+
		"until they stop, or until isobar reload --confirm %s", h.Service, h.Rate, digest)
	switch {
	case h.Silent == 1:
		text += "; 1 client subscribes to it and reports no load, so what it sends is not known"
	case h.Silent > 1:
		text += fmt.Sprintf("; %d clients subscribe to it and report no load, so what they send is not known", h.Silent)
	}
	return text
}
