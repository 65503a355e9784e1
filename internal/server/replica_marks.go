package server

import (
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// marks are the moments that charts mark. The leader's plans bring them to all replicas.
type marks interface {
	// Fresh lists the marks that other replicas may not have yet.
	Fresh(now time.Time) []admin.SampleMark
	// Note adds a mark, unless it is known.
	Note(now time.Time, m admin.SampleMark)
}

// marksToProto returns the marks that other replicas may not have yet.
func marksToProto(of marks, now time.Time) []*peerv1.ChartMark {
	var out []*peerv1.ChartMark
	for _, m := range of.Fresh(now) {
		out = append(out, &peerv1.ChartMark{AgeMicros: now.Sub(m.At).Microseconds(), AtMicros: m.At.UnixMicro(), Text: m.Text, Who: m.Who})
	}
	return out
}

// noteMarks notes the marks of another replica.
func noteMarks(in marks, now time.Time, of []*peerv1.ChartMark) {
	for _, m := range of {
		at := now.Add(-time.Duration(m.GetAgeMicros()) * time.Microsecond).UTC().Truncate(time.Millisecond)
		if m.GetAtMicros() != 0 { // 0 in plans of earlier programs
			at = time.UnixMicro(m.GetAtMicros()).UTC()
		}
		in.Note(now, admin.SampleMark{At: at, Text: m.GetText(), Who: m.GetWho()})
	}
}
