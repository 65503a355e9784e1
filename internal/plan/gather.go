package plan

import (
	"slices"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// awaitsClients is why a provisional plan holds.
const awaitsClients = "all plans of the group are lost: waiting for load reports of the clients that have one"

func awaitClients(s *Service) {
	if s.Hold == "" {
		s.Hold = awaitsClients
	}
}

// Gather books what was reported and decides nothing. It returns what clients do, as if
// that had been the last plan, and what fraction of them has reported; see
// [load.Table.Returned]. A provisional plan is followed by one that goes on from there.
func (d *Decider) Gather(t *Turn) (observed Saved, returned float64) {
	d.table.SetInterval(t.Interval)
	d.table.SetNetwork(t.Topology.Network)
	d.table.Merge(t.Windows)
	t.sortWatched()
	d.table.SetSubscribed(t.subscriptions(), t.Now)
	snapshot := d.table.Snapshot(t.Now)
	observed = Saved{Version: t.Previous.Version, Made: t.Now, Paused: t.Paused}
	for i := range snapshot.Services {
		if s := savedFrom(&snapshot.Services[i]); len(s.Sources) > 0 {
			observed.Services = append(observed.Services, s)
		}
	}
	return observed, d.table.Returned(t.Now)
}

// showsShare reports whether requests that landed in a locality show the share that their
// clients have for it: those of a failover tier do not.
func showsShare(l *load.LandedLoad) bool { return l.Priority == 0 && l.Issued > 0 }

// savedFrom returns what the clients of a service do: what each source sends, and the
// shares that its requests to priority 0 have.
func savedFrom(l *load.ServiceLoad) SavedService {
	out := SavedService{Name: l.Name}
	for i := range l.Sources {
		for j := range l.Sources[i].Landed {
			if landed := &l.Sources[i].Landed[j]; showsShare(landed) {
				out.Sites = append(out.Sites, landed.Locality)
			}
		}
	}
	slices.SortFunc(out.Sites, isobar.Locality.Compare)
	out.Sites = slices.Compact(out.Sites)
	for i := range l.Sources {
		src := &l.Sources[i]
		shares, all := make([]float64, len(out.Sites)), 0.0
		for j := range src.Landed {
			if landed := &src.Landed[j]; showsShare(landed) {
				at, _ := slices.BinarySearchFunc(out.Sites, landed.Locality, isobar.Locality.Compare)
				shares[at] += landed.Issued
				all += landed.Issued
			}
		}
		if all <= 0 {
			continue
		}
		for j := range shares {
			shares[j] /= all
		}
		out.Sources = append(out.Sources, SavedSource{Source: src.Source, Demand: src.Demand, Unproven: src.Claimed, Variability: src.Swing, Shares: shares})
	}
	return out
}
