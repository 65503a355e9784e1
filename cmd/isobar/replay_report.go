package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/replay"
)

// replayReport is what a replay found.
type replayReport struct {
	Isobar     string         `json:"isobar"` // that recorded it
	Arch       string         `json:"arch"`
	Recordings int            `json:"recordings"`
	From       time.Time      `json:"from"`
	To         time.Time      `json:"to"`
	Decided    map[string]int `json:"decided"`       // plans by how they came about
	Same       bool           `json:"same"`          // all plans are, byte for byte
	Differ     int            `json:"differ"`        // plans that are not
	Difference string         `json:"difference"`    // the first
	Cut        string         `json:"cut,omitempty"` // where the trace ends too early

	Total    comparison            `json:"total"`
	Services map[string]comparison `json:"services"`
	Plans    []replayedPlan        `json:"plans"`

	total    tallies
	services map[string]*tallies
}

// comparison sets what was decided beside what would have been.
type comparison struct {
	Decided summary  `json:"decided"`
	WhatIf  *summary `json:"what_if,omitempty"`
}

// replayedPlan is one plan of the trace.
type replayedPlan struct {
	At      time.Time  `json:"at"`
	How     string     `json:"how"`
	Version uint64     `json:"version"`
	Same    bool       `json:"same"`
	Failed  string     `json:"failed,omitempty"` // planning did
	Decided momentary  `json:"decided"`
	WhatIf  *momentary `json:"what_if,omitempty"`
}

// momentary is how a plan looks, and what it moves.
type momentary struct {
	plan.Outlook

	Moved float64 `json:"moved"` // requests/s that go elsewhere than before
}

// summary is a mean over the ticks of a trace, by the model of the solver.
type summary struct {
	Ticks       int     `json:"ticks"`
	Latency     float64 `json:"latency_ms"`   // mean over requests
	CrossZone   float64 `json:"cross_zone"`   // part of the requests
	CrossRegion float64 `json:"cross_region"` // part of the requests
	Shed        float64 `json:"shed"`         // part of the demand
	Fullest     float64 `json:"fullest"`      // the highest utilization of a tick, at the worst
	FullestMean float64 `json:"fullest_mean"` // and in the mean
	Where       string  `json:"where"`        // it was at the worst
	Over        float64 `json:"over"`         // part of the ticks with a locality above its ceiling
	Moved       float64 `json:"moved"`        // part of the demand that goes elsewhere, per tick
}

// tallies adds up both sides.
type tallies struct{ decided, what tally }

type tally struct {
	ticks                                       int
	demand, shed, served, latency, zone, region float64
	fullest, fullestSum, moved                  float64
	where                                       string
	over                                        int
}

func newReplayReport() *replayReport {
	return &replayReport{Decided: map[string]int{}, Services: map[string]comparison{}, services: map[string]*tallies{}, Plans: []replayedPlan{}}
}

// take adds a step.
func (r *replayReport) take(p *played) {
	if r.From.IsZero() {
		r.From = p.Now.UTC()
	}
	r.Isobar, r.Arch, r.Recordings, r.To = p.about.Isobar, p.about.Arch, p.recordings, p.Now.UTC()
	r.Decided[p.How]++
	row := replayedPlan{At: p.Now.UTC(), How: p.How, Version: p.Turn.Version, Same: p.Difference == "", Failed: p.Decided.Failed}
	if p.Difference != "" {
		if r.Differ++; r.Difference == "" {
			r.Difference = fmt.Sprintf("plan %d (%s at %s): %s", p.Turn.Version, p.How, p.Now.UTC().Format(time.RFC3339), p.Difference)
		}
	}
	if p.Plan != nil {
		row.Decided = r.add(p.Step, func(t *tallies) *tally { return &t.decided })
		if p.what != nil && p.what.step.Plan != nil {
			m := r.add(&p.what.step, func(t *tallies) *tally { return &t.what })
			row.WhatIf = &m
		}
	}
	r.Plans = append(r.Plans, row)
}

// add adds a plan to one of the sides.
func (r *replayReport) add(s *replay.Step, side func(*tallies) *tally) momentary {
	tick := s.How == replay.HowTick
	for _, name := range s.Plan.ServiceNames() {
		t := r.services[name]
		if t == nil {
			t = &tallies{}
			r.services[name] = t
		}
		side(t).add(momentary{plan.OutlookOf(s.Plan, name), s.Plan.Moved(s.Before, name)}, tick)
	}
	whole := momentary{plan.OutlookOf(s.Plan, ""), s.Plan.Moved(s.Before, "")}
	side(&r.total).add(whole, tick)
	return whole
}

// add adds a plan; what moves counts always, and the rest at ticks, which come
// at equal times.
func (t *tally) add(m momentary, tick bool) {
	t.moved += m.Moved
	if !tick {
		return
	}
	served := m.Demand - m.Shed
	t.ticks++
	t.demand += m.Demand
	t.shed += m.Shed
	t.served += served
	t.latency += m.Latency * served
	t.zone += m.CrossZone * served
	t.region += m.CrossRegion * served
	t.fullestSum += m.Fullest
	if m.Fullest > t.fullest {
		t.fullest, t.where = m.Fullest, m.Of+"@"+m.Where.String()
	}
	if m.Over > 0 {
		t.over++
	}
}

func (t *tally) summary() summary {
	out := summary{Ticks: t.ticks, Fullest: t.fullest, Where: t.where}
	if t.ticks > 0 {
		out.FullestMean, out.Over = t.fullestSum/float64(t.ticks), float64(t.over)/float64(t.ticks)
	}
	if t.served > 0 {
		out.Latency, out.CrossZone, out.CrossRegion = t.latency/t.served, t.zone/t.served, t.region/t.served
	}
	if t.demand > 0 {
		out.Shed, out.Moved = t.shed/t.demand, t.moved/t.demand
	}
	return out
}

func (t *tallies) comparison() comparison {
	out := comparison{Decided: t.decided.summary()}
	if t.what.ticks > 0 {
		what := t.what.summary()
		out.WhatIf = &what
	}
	return out
}

// finish works out the summaries.
func (r *replayReport) finish() {
	r.Same = r.Difference == ""
	r.Total = r.total.comparison()
	for name, t := range r.services {
		r.Services[name] = t.comparison()
	}
}

// plans counts those of the trace.
func (r *replayReport) plans() int {
	n := 0
	for _, how := range slices.Sorted(maps.Keys(r.Decided)) {
		n += r.Decided[how]
	}
	return n
}
