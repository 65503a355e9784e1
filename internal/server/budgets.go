package server

import (
	"fmt"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/admission"
)

// nearlyUsed is the part of a limit from which on it is told, so that there is time to
// raise it before clients are refused.
const nearlyUsed = 0.8

// budgetTroubles lists the limits that are used to nearlyUsed or more: what comes
// above them is refused.
func (s *Server) budgetTroubles() []admin.Attention {
	use := s.gate.Use()
	var out []admin.Attention
	note := func(used, most int64, format string, args ...any) {
		if most > 0 && float64(used) >= nearlyUsed*float64(most) {
			out = append(out, admin.NewAttention(admin.BudgetNearlyUsed, format, append([]any{used, most}, args...)...))
		}
	}
	how := "raise xds.admission.max_connections"
	if use.ByFiles {
		how = "the limit of open files allows no more: raise it (LimitNOFILE in systemd, ulimit -n)"
	}
	note(int64(use.Connections), int64(use.MostConnections), "%d of %d connections of clients are in use: %s", how)
	for _, x := range []struct {
		what string
		of   func() (int, int)
	}{{"discovery streams", s.xds.Streams}, {"load report streams", s.lrs.Streams}} {
		open, most := x.of()
		note(int64(open), int64(most), "%d of %d %s are open: raise xds.max_streams", x.what)
	}
	checkers, most := s.hds.Room()
	note(int64(checkers), int64(most), "%d of %d checkers are connected, and that limit is fixed: run fewer")
	const mebi = 1 << 20
	used, names := s.xds.NameMemory()
	note(used/mebi, names/mebi, "the names that clients subscribe to take %d of %d MiB: raise xds.admission.name_megabytes")
	note(use.Messages/mebi, use.MostMessages/mebi,
		"messages of clients that nobody has taken yet hold %d of %d MiB; above that the connections which hold most are closed")
	for _, peer := range use.Peers {
		for _, x := range []struct {
			admission.Use

			what, setting string
		}{{peer.Streams, "streams of one kind", "peer_streams"}, {peer.Localities, "localities", "peer_localities"}} {
			note(int64(x.Used), int64(x.Most), "%d of %d %s that one client may use are used by the %s: raise xds.admission.%s",
				x.what, fmt.Sprintf("%.200s", x.Peer), x.setting)
		}
	}
	return out
}
