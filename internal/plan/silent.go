package plan

import (
	"github.com/isobar-xds/isobar"
)

// SilentClients are clients of a locality that subscribe to a service and report no
// load.
type SilentClients struct {
	Source  isobar.Locality
	Clients int
}

// ToldCoverage is Coverage less the part of the demand that silent clients send. What
// they send nobody knows: each counts as the mean of those of its source that report,
// where none does as the mean of all.
func (s *Service) ToldCoverage(silent []SilentClients) float64 {
	demand, nodes := 0.0, 0
	reporting := map[isobar.Locality]float64{} // the mean demand of a client
	if s.Load != nil {
		for i := range s.Load.Sources {
			src := &s.Load.Sources[i]
			n := src.Nodes + src.Held
			demand += src.Demand
			nodes += n
			if n > 0 {
				reporting[src.Source] = src.Demand / float64(n)
			}
		}
	}
	hidden, clients := 0.0, 0
	for _, x := range silent {
		clients += x.Clients
		mean, known := reporting[x.Source]
		if !known && nodes > 0 {
			mean = demand / float64(nodes)
		}
		hidden += mean * float64(x.Clients)
	}
	switch {
	case clients == 0:
		return s.Coverage
	case demand > 0 && hidden > 0:
		return s.Coverage * demand / (demand + hidden)
	}
	return s.Coverage * float64(nodes) / float64(nodes+clients)
}
