package server

import (
	"context"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Reserves tells how each service stands the loss of its worst zone, and when
// that was so; zero before the first round.
func (s *Server) Reserves() (at time.Time, services []plan.Reserve) { return s.loop.Reserves() }

// breaches tells what a drain would make too much.
func (s *Server) breaches(ctx context.Context, d *admin.Drain) ([]string, error) {
	if len(d.Services) > 0 {
		return s.loop.BreachesOf(ctx, d.Services)
	}
	return s.loop.Breaches(ctx, d.Health)
}

// preview tells what another configuration file would change. What a reload would
// refuse, it refuses.
func (s *Server) preview(ctx context.Context, body []byte) (plan.Difference, []admin.Problem, error) {
	next, found, err := config.Decode("body", body)
	warnings := problems(found)
	if err != nil {
		return plan.Difference{}, warnings, inputError(err)
	}
	if err := s.lost("body", next); err != nil {
		return plan.Difference{}, warnings, inputError(err)
	}
	listed, unknown := s.upstream.Preview(upstreamConfig(next.Source))
	topology, operators, conflicts, err := s.registry.Preview(next.Services, listed, unknown, next.Network)
	if err != nil {
		return plan.Difference{}, warnings, inputError(err)
	}
	for _, text := range conflicts {
		warnings = append(warnings, admin.Problem{Error: text})
	}
	for i := range unknown {
		text := "service " + unknown[i].Name + " of source.xds has no endpoints before the other control plane lists them: its clients keep what they have"
		warnings = append(warnings, admin.Problem{Error: text})
	}
	if text := s.outdatedDefaults(next); text != "" {
		warnings = append(warnings, admin.Problem{Error: text})
	}
	d, err := s.loop.Preview(ctx, topology, operators)
	return d, warnings, err
}
