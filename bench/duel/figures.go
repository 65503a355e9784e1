package main

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar/internal/fleet/envoyloop"
)

// figures are what the clients of one policy experienced from the event on. A
// failed request counts with the timeout.
type figures struct {
	Policy   string  `json:"policy"`
	Requests int     `json:"requests"`
	MeanMS   float64 `json:"mean_ms"`
	P99MS    float64 `json:"p99_ms"`
	Failed   float64 `json:"failed"`          // part of the requests
	Fullest  float64 `json:"fullest"`         // utilization of the zone that is fullest on average
	Peak     float64 `json:"peak"`            // highest utilization of a zone in a period
	Settled  float64 `json:"settled_ms"`      // mean in the last third
	Cross    float64 `json:"cross_region"`    // part of the requests
	CrossMB  float64 `json:"cross_region_mb"` // of the bodies of responses
	Before   float64 `json:"before_ms"`       // mean before the event, without the time in which the fleet starts

	Periods []float64 `json:"period_ms"` // mean of each period, from the start
}

// period is the resolution of peaks and charts.
const period = 4 * time.Second

// starting is left out of the time before the event.
const starting = 10 * time.Second

// measure computes the figures of a run.
func (f *fleet) measure(requests []envoyloop.Request) figures {
	o := f.options
	out := figures{Policy: f.policy.Name}
	var before, all, settled mean
	periods := make([]mean, (o.warm+o.length+period-1)/period)
	arrived := make([][]float64, len(zones)) // by period from the event on
	for z := range arrived {
		arrived[z] = make([]float64, (o.length+period-1)/period)
	}
	times := make([]float64, 0, len(requests))
	for i := range requests {
		r := &requests[i]
		took := milliseconds(r.Took)
		if r.Outcome != envoyloop.Succeeded {
			took = milliseconds(timeout)
		}
		periods[r.At/period].add(took)
		since := r.At - o.warm
		if since < 0 {
			if r.At >= starting {
				before.add(took)
			}
			continue
		}
		all.add(took)
		times = append(times, took)
		if since >= o.length*2/3 {
			settled.add(took)
		}
		if r.Outcome != envoyloop.Succeeded {
			out.Failed++
		}
		z, known := f.zoneOf[r.Upstream]
		if !known {
			continue
		}
		arrived[z][since/period]++
		if zones[z].Region != zones[r.Source].Region {
			out.Cross++
			out.CrossMB += float64(r.Bytes) / 1e6
		}
	}
	out.Requests, out.MeanMS, out.Before, out.Settled = all.n, all.value(), before.value(), settled.value()
	if n := float64(all.n); n > 0 {
		out.Failed /= n
		out.Cross /= n
	}
	if slices.Sort(times); len(times) > 0 {
		out.P99MS = times[len(times)*99/100]
	}
	out.Fullest, out.Peak = f.utilization(arrived)
	for i := range periods {
		out.Periods = append(out.Periods, periods[i].value())
	}
	return out
}

// utilization is that of the zone that is fullest on average, and the highest of a
// whole period, after the event; a lost zone has none.
func (f *fleet) utilization(arrived [][]float64) (fullest, peak float64) {
	for z := range zones {
		able := f.scenario.able(z)
		if able == 0 {
			continue
		}
		sum := 0.0
		for i, n := range arrived[z] {
			sum += n
			if time.Duration(i+1)*period <= f.options.length {
				peak = max(peak, n/able/period.Seconds())
			}
		}
		fullest = max(fullest, sum/able/f.options.length.Seconds())
	}
	return fullest, peak
}

// able is what the backends of a zone can do after the event, requests/s.
func (s *scenario) able(zone int) float64 {
	switch {
	case zone > 0:
		return capacity
	case s.Lost:
		return 0
	case s.Slow > 0:
		return capacity / s.Slow
	}
	return capacity
}

// mean is a mean that grows.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(x float64) {
	m.sum += x
	m.n++
}

func (m *mean) value() float64 {
	if m.n == 0 {
		return 0
	}
	return m.sum / float64(m.n)
}
