package server

import (
	"context"
	"io"

	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/trace"
)

// Record writes everything that is decided from now on, and from what, to w as
// a trace, until ctx ends, a write fails, or the server stops. Where w does not
// keep up, the recording fails, and nothing else waits.
func (s *Server) Record(ctx context.Context, w io.Writer) error {
	r := trace.NewRecorder(s.opts.Version, 0)
	err := s.loop.Record(ctx, r, func(b control.Beginning) error {
		start := trace.Start(b)
		return r.Begin(&start)
	})
	if err != nil {
		return err
	}
	return r.Run(ctx, w, nil)
}
