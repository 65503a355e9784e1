package samples

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// Series is what a Ring holds of a service at one resolution. All slices have the same
// length; NaN stands for a missing value.
type Series struct {
	Begin  time.Time // of the first step, in UTC
	Step   time.Duration
	Values []Values
	Sites  []SiteSeries // sorted
}

// SiteSeries is the utilization of a locality.
type SiteSeries struct {
	Locality    isobar.Locality
	Utilization []float64
}

// Series gives the last hour of a service, or with coarse the last day; false if
// there is no sample of it. A coarse step that is not over is not part of it.
func (r *Ring) Series(service string, coarse bool) (Series, bool) {
	i := 0
	if coarse {
		i = 1
	}
	s, a := r.services[service], &r.axes[i]
	if s == nil || !a.any || s.codes[i] == nil {
		return Series{}, false
	}
	begin, end := a.begin(), a.last
	if coarse {
		end--
	}
	out := Series{
		Begin: time.Unix(begin*a.step, 0).UTC(), Step: time.Duration(a.step) * time.Second,
		Values: make([]Values, max(0, end-begin+1)), Sites: make([]SiteSeries, len(s.sites)),
	}
	for k, l := range s.sites {
		out.Sites[k] = SiteSeries{Locality: *l, Utilization: make([]float64, len(out.Values))}
	}
	for j := range out.Values {
		codes := s.at(i, a, begin+int64(j))
		for m := range measures {
			*out.Values[j].row(m) = decode(codes[m])
		}
		for k := range s.sites {
			out.Sites[k].Utilization[j] = decode(codes[measures+k])
		}
	}
	slices.SortFunc(out.Sites, func(a, b SiteSeries) int { return a.Locality.Compare(b.Locality) })
	return out, true
}
