package server

import (
	"context"
	"io"

	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/replay"
)

// Record writes everything that is decided from now on, and from what, to w as
// a trace, until ctx ends, a write fails, or the server stops. Where w does not
// keep up, the recording fails, and nothing else waits.
func (s *Server) Record(ctx context.Context, w io.Writer) error {
	r := replay.NewRecorder(s.opts.Version, 0)
	if err := s.listen(ctx, r, func() {}); err != nil {
		r.End(replay.EndStopped) // where the loop began to tell it nevertheless
		return err
	}
	return r.Run(ctx, w, nil)
}

// listen lets a recorder hear everything from now on. begun is called when it has
// begun, before anything else is decided.
func (s *Server) listen(ctx context.Context, r *replay.Recorder, begun func()) error {
	return s.loop.Record(ctx, r, func(b control.Beginning) error {
		start := replay.Start(b)
		if err := r.Begin(&start); err != nil {
			return err
		}
		begun()
		return nil
	})
}

// openTrace prepares the rolling trace, where one is configured.
func (s *Server) openTrace() {
	t := s.fixed.Trace
	if t == nil {
		return
	}
	s.tracing = replay.NewRoller(replay.RollOptions{
		Directory: t.Directory, Keep: t.Keep, MaxBytes: t.MaxBytes,
		Version: s.opts.Version, Open: s.opts.CreateTrace, Logger: s.log, Registerer: s.metrics,
	})
}

// keepTrace records until ctx ends.
func (s *Server) keepTrace(ctx context.Context) {
	if s.tracing != nil {
		s.tracing.Run(ctx, s.listen)
	}
}
