package health

import (
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
)

// Served is a locality of a service in which the requests of clients succeed.
type Served struct {
	Service  string
	Locality isobar.Locality
}

// ClientReports is what load reports tell of health.
type ClientReports struct {
	Served []Served // all there are, in any order
}

// learn takes over what load reports tell.
func (b *VerdictTable) learn(reports *ClientReports) {
	if reports == nil {
		return
	}
	served := slices.Clone(reports.Served)
	slices.SortFunc(served, func(x, y Served) int {
		if c := strings.Compare(x.Service, y.Service); c != 0 {
			return c
		}
		return x.Locality.Compare(y.Locality)
	})
	for _, l := range b.services {
		first, _ := slices.BinarySearchFunc(served, l.name, func(s Served, name string) int { return strings.Compare(s.Service, name) })
		var now []isobar.Locality
		for _, s := range served[first:] {
			if s.Service != l.name {
				break
			}
			now = append(now, s.Locality)
		}
		if !slices.Equal(now, l.served) {
			l.served, l.dirty = now, true
		}
	}
}

// reached reports whether the requests of clients succeed in a locality: then checkers
// that vote down most of the service are not believed, whatever they see elsewhere.
func (l *serviceVotes) reached(at isobar.Locality) bool { return slices.Contains(l.served, at) }
