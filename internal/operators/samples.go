package operators

import (
	"context"
	"fmt"
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

// Sampler keeps samples of the plans in force, for charts of the last day.
type Sampler struct {
	mu    sync.Mutex
	ring  *samples.Ring
	marks []notedMark // oldest first
}

// notedMark is a mark with the time at which this process heard of it.
type notedMark struct {
	admin.SampleMark

	noted time.Time
}

const (
	// sameMark is within which the same text is the same mark: who got no answer tries
	// again, and the clocks of replicas differ.
	sameMark = time.Second
	// freshMark is for how long a mark goes to the other replicas with each plan.
	freshMark = time.Minute
)

// Note marks a moment of which this process hears now.
func (s *Sampler) Note(now time.Time, m admin.SampleMark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.marks, func(o notedMark) bool {
		return o.Text == m.Text && o.Who == m.Who && o.At.Sub(m.At).Abs() < sameMark
	}) {
		return
	}
	i, _ := slices.BinarySearchFunc(s.marks, m.At, func(o notedMark, at time.Time) int {
		if o.At.After(at) {
			return 1
		}
		return -1
	})
	s.marks = slices.Insert(s.marks, i, notedMark{m, now})
	if len(s.marks) > maxMarks {
		s.marks = slices.Delete(s.marks, 0, 1)
	}
}

// Marks lists the moments that are marked, oldest first.
func (s *Sampler) Marks() []admin.SampleMark {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]admin.SampleMark, len(s.marks))
	for i := range s.marks {
		out[i] = s.marks[i].SampleMark
	}
	return out
}

// Fresh lists the marks that other replicas may not have yet.
func (s *Sampler) Fresh(now time.Time) []admin.SampleMark {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []admin.SampleMark
	for i := range s.marks {
		if m := &s.marks[i]; now.Sub(m.noted) < freshMark {
			out = append(out, m.SampleMark)
		}
	}
	return out
}

// Charts shows samples and marks to operators. It implements [admin.Charts].
type Charts struct {
	*Sampler

	Leading func() error // of a replica of a group, an error unless it leads; nil = this server is alone
}

// Mark implements [admin.Charts]. In a group, the leader's plans bring marks to all replicas.
func (c Charts) Mark(m admin.SampleMark) error {
	if c.Leading != nil && c.Leading() != nil {
		return fmt.Errorf("%w: no replica leads the group, so that the mark would not come to all of them", isobar.ErrUnavailable)
	}
	c.Note(time.Now(), m)
	return nil
}

// NewSampler returns a sampler without samples.
func NewSampler() *Sampler { return &Sampler{ring: samples.NewRing(0)} }

// Run samples the current plan until ctx ends. Where memory makes the steps longer,
// it samples as rarely.
func (s *Sampler) Run(ctx context.Context, current func() *plan.Plan) {
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

func (s *Sampler) add(at time.Time, p *plan.Plan) {
	taken := sampled(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring.Add(at, taken)
}

// Samples returns the samples of a service, or of all services together for an empty name.
func (s *Sampler) Samples(service string, day bool) (samples.Series, bool) {
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
				s.Sites = append(s.Sites, samples.Site{Locality: site.Group.Locality, Utilization: (svc.Result.Load[i] + site.Unmanaged) / site.Capacity})
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
