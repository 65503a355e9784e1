package operators

import (
	"context"
	"io"

	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/replay"
)

// Recordings write what the loop decides, and from what, as traces.
type Recordings struct {
	loop    *control.Loop
	version string
	rolling *replay.Roller
}

// NewRecordings returns what records the loop. version is that of the program; rolling is
// nil where there is no rolling trace.
func NewRecordings(loop *control.Loop, version string, rolling *replay.Roller) *Recordings {
	return &Recordings{loop: loop, version: version, rolling: rolling}
}

// Record implements [admin.Recorder]: it records until ctx ends, a write fails, or the
// server stops. Where w does not keep up, the recording fails, and nothing else waits.
func (r *Recordings) Record(ctx context.Context, w io.Writer) error {
	recorder := replay.NewRecorder(r.version, 0)
	if err := r.listen(ctx, recorder, func() {}); err != nil {
		recorder.End(replay.EndStopped) // where the loop began to tell it nevertheless
		return err
	}
	return recorder.Run(ctx, w, nil)
}

// listen lets a recorder hear everything from now on. begun is called when it has
// begun, before anything else is decided.
func (r *Recordings) listen(ctx context.Context, recorder *replay.Recorder, begun func()) error {
	return r.loop.Record(ctx, recorder, func(b control.Beginning) error {
		start := replay.Start(b)
		if err := recorder.Begin(&start); err != nil {
			return err
		}
		begun()
		return nil
	})
}

// Roll writes the rolling trace, where there is one, until ctx ends.
func (r *Recordings) Roll(ctx context.Context) {
	if r.rolling != nil {
		r.rolling.Run(ctx, r.listen)
	}
}

// Trouble says why the rolling trace has stopped; "" = it has not.
func (r *Recordings) Trouble() string { return r.rolling.Trouble() }
