package admin

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/archive"
	"github.com/isobar-xds/isobar/internal/plan"
)

// NetChange is the body of GET /v1/history/net.
type NetChange struct {
	Version      string               `json:"version"` // of the plan in force
	From         time.Time            `json:"from"`
	To           time.Time            `json:"to"`
	Count        int                  `json:"count"`           // of the changes from one moment on and before the other
	Counted      int                  `json:"counted"`         // number of the newest changes, on which the other fields are based
	Since        *time.Time           `json:"since,omitempty"` // time of the first counted change
	EventCount   int                  `json:"event_count"`     // of the changes of health, of the configuration and by operators
	Events       []archive.Mark       `json:"events"`          // of those, the 5 largest, largest first; why has causes only
	ServiceCount int                  `json:"service_count"`   // services that changed
	Services     []archive.NetService `json:"services"`        // of those, the 50 with the largest difference in requests, largest first
}

// Bounds of the answer.
const (
	maxNetServices = 50
	maxNetEvents   = 5
	maxNetMoves    = 20  // of each of several services
	maxNetMovesOne = 200 // of the one that is asked about
)

// getNet answers GET /v1/history/net?from=TIME&to=TIME&service=NAME: what differs after a
// span from before it.
func (s *historyAPI) getNet(w http.ResponseWriter, r *http.Request) {
	p, ends, ok := s.asked(w, r)
	if !ok {
		return
	}
	name := r.URL.Query().Get("service")
	marks, ok := s.marks(w, r, name)
	if !ok { // the service is unknown
		return
	}
	found, ok := s.net(w, r, name, ends)
	if !ok {
		return
	}
	events := archive.Events(archive.Between(marks, ends[0], ends[1]))
	out := NetChange{
		Version: p.VersionString(), From: ends[0].UTC(), To: ends[1].UTC(), Count: found.Count, Counted: found.Counted,
		EventCount: len(events), Events: causesOf(events[:min(len(events), maxNetEvents)]), ServiceCount: len(found.Services), Services: found.Services,
	}
	if !found.Since.IsZero() {
		since := found.Since.UTC()
		out.Since = &since
	}
	moves := maxNetMoves
	if name != "" {
		moves = maxNetMovesOne
	}
	for i := range out.Services {
		weigh(&out.Services[i], p)
	}
	slices.SortStableFunc(out.Services, byDifference)
	out.Services = out.Services[:min(len(out.Services), maxNetServices)]
	for i := range out.Services {
		x := &out.Services[i]
		x.Moves = x.Moves[:min(len(x.Moves), moves)]
	}
	reply(w, http.StatusOK, out)
}

// net reads the changes of a span. Without ok it is answered.
func (s *historyAPI) net(w http.ResponseWriter, r *http.Request, name string, ends [2]time.Time) (archive.Net, bool) {
	if s.opts.Archive == nil {
		changes, ok := s.recent(w, r, name)
		changes = slices.Clone(changes)
		slices.Reverse(changes)
		return archive.NetOf(changes, ends[0], ends[1]), ok
	}
	found, err := s.opts.Archive.Net(name, ends[0], ends[1])
	if err != nil {
		fail(w, http.StatusInternalServerError, Problem{Error: err.Error()})
	}
	return found, err == nil
}

// causesOf leaves out of changes what they say of how far that one decision went.
func causesOf(events []archive.Mark) []archive.Mark {
	for i := range events {
		m := &events[i]
		if m.Why = plan.CauseIn(m.Why); m.Why == plan.NoCause {
			m.Why = ""
		}
	}
	return events
}

// weigh adds the rates of the present demand, and puts the largest moves first. The history
// keeps no demand.
func weigh(x *archive.NetService, p *plan.Plan) {
	demand := map[isobar.Locality]float64{}
	svc, exists := p.Service(x.Service)
	if exists && svc.Result != nil {
		for i := range svc.Result.Sources {
			demand[svc.Result.Sources[i].Source] = svc.Result.Sources[i].Demand
		}
	}
	x.Removed = !exists
	more := 0.0
	for i := range x.Moves {
		m := &x.Moves[i]
		rate, known := demand[m.Source]
		if !known {
			continue
		}
		rate *= share(m.After) - share(m.Before)
		m.Rate = &rate
		more += max(0, rate)
	}
	if len(demand) > 0 {
		x.Rate = &more
	}
	slices.SortStableFunc(x.Moves, func(a, b archive.NetMove) int { return bySize(sizeOf(&a), sizeOf(&b)) })
}

// share takes a source that is not there for one that sends nothing.
func share(x *float64) float64 {
	if x == nil {
		return 0
	}
	return *x
}

// size orders differences: by requests, then by shares, then by the difference between the
// highest and the lowest share. What is gone for good has no demand now and comes first.
type size struct {
	gone              bool
	rate, share, span float64
}

func sizeOf(m *archive.NetMove) size {
	out := size{gone: m.Before != nil && m.After == nil, share: math.Abs(share(m.After) - share(m.Before)), span: m.High - m.Low}
	if m.Rate != nil {
		out.rate = math.Abs(*m.Rate)
	}
	return out
}

func bySize(a, b size) int {
	first := func(x size) int {
		if x.gone {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(first(b), first(a)), cmp.Compare(b.rate, a.rate), cmp.Compare(b.share, a.share), cmp.Compare(b.span, a.span))
}

// byDifference orders services by their largest move, which readers are shown for each.
func byDifference(a, b archive.NetService) int {
	of := func(x *archive.NetService) size {
		out := size{share: math.Abs(x.DropAfter - x.DropBefore)}
		gone := len(x.Moves) > 0
		for i := range x.Moves {
			m := sizeOf(&x.Moves[i])
			gone = gone && x.Moves[i].After == nil
			out.rate, out.share, out.span = max(out.rate, m.rate), max(out.share, m.share), max(out.span, m.span)
		}
		out.gone = gone && x.Removed
		return out
	}
	return bySize(of(&a), of(&b))
}
