package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/samples"
)

// maxMarks bounds the moments that charts mark.
const maxMarks = 200

// sampler keeps samples of the plans in force, for charts of the last day.
type sampler struct {
	mu    sync.Mutex
	ring  *samples.Ring
	marks []admin.SampleMark // oldest first
}

// Mark notes that something happens now, to be seen in the charts of the last day.
func (s *Server) Mark(text string) { s.sampler.mark(time.Now(), text) }

func (s *sampler) mark(at time.Time, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.marks) == maxMarks {
		s.marks = slices.Delete(s.marks, 0, 1)
	}
	s.marks = append(s.marks, admin.SampleMark{At: at.UTC(), Text: text})
}

// Marks implements [admin.Charts].
func (s *sampler) Marks() []admin.SampleMark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.marks)
}

func newSampler() *sampler { return &sampler{ring: samples.NewRing(0)} }

// run samples the current plan until ctx ends. Where memory makes the steps longer,
// it samples as rarely.
func (s *sampler) run(ctx context.Context, current func() *plan.Plan) {
	for {
		if p := current(); p != nil {
			s.add(time.Now(), p)
		}
		s.mu.Lock()
		step := s.ring.Step()
		s.mu.Unlock()
		// In the middle of a step, so that each step has one sample.
		wait := time.Until(time.Now().Truncate(step).Add(step + step/2))
		if wait > step {
			wait -= step
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

func (s *sampler) add(at time.Time, p *plan.Plan) {
	taken := sampled(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring.Add(at, taken)
}

// Samples implements [admin.Charts]. It returns the samples of a service, or of all services together for an empty name.
func (s *sampler) Samples(service string, day bool) (samples.Series, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ring.Series(service, day)
}

// sampled takes the samples of a plan: all services together, then each of them.
func sampled(p *plan.Plan) []samples.Service {
	out := make([]samples.Service, 1, 1+len(p.Services))
	var all flowSums
	for _, svc := range p.Services {
		if svc.Result == nil {
			continue
		}
		sums := flowsOf(svc)
		all.add(&sums)
		s := samples.Service{Name: svc.Spec.Name, Values: sums.values(svc.PlanGap)}
		for i := range svc.Result.Sites {
			site := &svc.Result.Sites[i]
			if site.Capacity > 0 && i < len(svc.Result.Load) {
				s.Sites = append(s.Sites, samples.Site{Locality: site.Group.Locality, Utilization: (svc.Result.Load[i] + site.Background) / site.Capacity})
			}
		}
		out = append(out, s)
	}
	out[0].Values = all.values(p.PlanGap)
	return out
}

// flowSums are rates in requests/s.
type flowSums struct{ demand, dropped, sent, zone, region float64 }

func (f *flowSums) add(o *flowSums) {
	f.demand += o.demand
	f.dropped += o.dropped
	f.sent += o.sent
	f.zone += o.zone
	f.region += o.region
}

func (f *flowSums) values(gap float64) samples.Values {
	v := samples.Values{Demand: f.demand, Gap: gap}
	if f.demand > 0 {
		v.Drop = f.dropped / f.demand
	}
	if f.sent > 0 {
		v.CrossZone, v.CrossRegion = f.zone/f.sent, f.region/f.sent
	}
	return v
}

// flowsOf sums what the sources of a service send, by the published shares. A source
// without a locality is in no zone, so that none of its requests leaves one.
func flowsOf(svc *plan.Service) flowSums {
	var f flowSums
	for i := range svc.Result.Sources {
		r := &svc.Result.Sources[i]
		f.demand += r.Demand
		f.dropped += r.Demand * svc.Result.Drop
		for l, share := range r.Shares {
			rate := r.Demand * share
			if rate <= 0 {
				continue
			}
			f.sent += rate
			cross(&f, r.Source, svc.Result.Sites[l].Group.Locality, rate)
		}
	}
	return f
}

func cross(f *flowSums, from, to isobar.Locality, rate float64) {
	switch {
	case from.IsZero():
	case from.Region != to.Region:
		f.region += rate
		f.zone += rate
	case from.Zone != to.Zone:
		f.zone += rate
	}
}
