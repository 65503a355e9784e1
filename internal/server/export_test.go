package server

import (
	"context"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Reserves returns how each service stands the loss of its worst zone, and when
// that was so; zero before the first round.
func (s *Server) Reserves() (at time.Time, services []plan.Reserve) { return s.loop.Reserves() }

// Reload reads the configuration file and puts it in force; with a digest also
// what is held of the change that has it, once. Errors wrap isobar.ErrStale
// where the file is another one, and isobar.ErrInvalid where it is refused.
func (s *Server) Reload(confirm string) (*admin.HeldConfiguration, error) {
	return s.configuration.Reload(confirm)
}

// Record writes everything that is decided from now on, and from what, to w as
// a trace, until ctx ends, a write fails, or the server stops. Where w does not
// keep up, the recording fails, and nothing else waits.
func (s *Server) Record(ctx context.Context, w io.Writer) error { return s.recordings.Record(ctx, w) }

// Metrics returns everything that the server counts.
func (s *Server) Metrics() prometheus.Gatherer { return s.metrics }
