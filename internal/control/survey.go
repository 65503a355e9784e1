package control

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/plan"
)

// surveyRest is how many times as long as it played the survey rests: it takes
// at most a tenth of a core, in one goroutine, and streams go first.
const surveyRest = 9

// A round comes early where the plan has changed much: surveyEarly times in an interval
// at most. Each surveyLook, the survey looks whether it has.
const (
	surveyEarly = 4
	surveyLook  = 5 * time.Second
)

// survey plays the loss of each zone again and again, beside the loop.
type survey struct {
	previews *previews
	retimed  chan struct{} // capacity 1: the interval changed
	found    atomic.Pointer[reserves]
}

// reserves is the result of a round of the survey. Immutable.
type reserves struct {
	at       time.Time // of the plan that it looked at
	fills    plan.Fills
	services []plan.Reserve
	zones    []plan.ZoneLoss
	failed   plan.Failed
}

// Reserves returns the effect of the loss of its worst zone on each service, and when it was
// computed; zero before the first round, and while there are none.
func (s *survey) Reserves() (at time.Time, services []plan.Reserve) {
	if r := s.found.Load(); r != nil {
		return r.at, r.services
	}
	return time.Time{}, nil
}

// Losses returns the effect on services of the loss of each zone that serves requests, and when
// it was computed; zero before the first round, and while there are none. They are outdated where
// a plan differs much from the one that they were computed with.
func (s *survey) Losses(now *plan.Plan) (at time.Time, zones []plan.ZoneLoss, outdated bool) {
	if r := s.found.Load(); r != nil {
		return r.at, r.zones, r.fills.Outdated(now)
	}
	return time.Time{}, nil, false
}

// Survey plays the loss of each zone again and again, a round at each
// Options.SurveyEvery, until ctx ends. It runs beside the loop and only reads.
func (s *survey) Survey(ctx context.Context) {
	every := func() time.Duration {
		if s.previews.opts.SurveyEvery == nil {
			return 0
		}
		return s.previews.opts.SurveyEvery()
	}
	last := time.Now()
	for s.rest(ctx, last, every) {
		if err := s.round(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, errLeft) {
			s.previews.opts.Log.Warn("the zone loss check failed; retrying at the next interval", "error", err)
		}
		last = time.Now()
	}
}

// rest waits until a round is due, which a reload may bring nearer or farther: the interval
// counts from the last round on. A plan that differs much from the one of the last round ends the
// wait, but not before a quarter of the interval is over. While rounds are off, results of
// earlier ones are removed. It returns false when ctx ended.
func (s *survey) rest(ctx context.Context, last time.Time, every func() time.Duration) bool {
	for {
		interval := every()
		var look <-chan time.Time // never, where it is off
		if interval > 0 {
			since := time.Since(last)
			early := interval / surveyEarly
			if since >= interval || since >= early && s.outdated() {
				return ctx.Err() == nil
			}
			look = time.After(min(interval-since, max(early-since, surveyLook)))
		} else {
			s.found.Store(nil)
		}
		select {
		case <-ctx.Done():
			return false
		case <-look:
		case <-s.retimed:
		}
	}
}

// outdated reports whether the plan of now differs so much from the one of the last
// round that losses may do something else.
func (s *survey) outdated() bool {
	r := s.found.Load()
	return r != nil && r.fills.Outdated(s.previews.loop.Current())
}

// pause waits; false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (s *survey) round(ctx context.Context) error {
	turn, err := s.previews.now(ctx)
	if err != nil {
		return err
	}
	losses := plan.NewSurvey(turn, s.previews.tick())
	if last := s.found.Load(); last != nil {
		losses.After(last.failed)
	}
	var failed error
	for more := true; more; {
		began := time.Now()
		if more, err = s.previews.step(losses); err != nil {
			failed = err
		}
		if spent := time.Since(began); !pause(ctx, surveyRest*spent) {
			return ctx.Err()
		}
	}
	s.found.Store(&reserves{
		at: turn.Now, fills: plan.FillsOf(turn.Previous), services: losses.Reserves(), zones: losses.Losses(), failed: losses.Failed(),
	})
	return failed
}

// reserveCollector shows the results of the survey. Labels are bounded by the configuration.
type reserveCollector struct {
	reserves func() (time.Time, []plan.Reserve)
}

var (
	descReserveChecked = prometheus.NewDesc("isobar_n1_check_timestamp_seconds",
		"Time of the plan for which the losses of zones were last simulated, Unix time.", nil, nil)
	descReserveHeadroom = prometheus.NewDesc("isobar_n1_headroom_ratio",
		"Free fraction of the remaining capacity under ceilings after the worst loss of a zone; below 0 the demand does not fit.", perService, nil)
	descReserveFull = prometheus.NewDesc("isobar_n1_utilization_ratio",
		"Utilization of the fullest locality over its ceiling after the worst loss of a zone.", perService, nil)
	descReserveDrop = prometheus.NewDesc("isobar_n1_drop_ratio", "Fraction of requests that clients drop after the worst loss of a zone.", perService, nil)
)

// Describe implements prometheus.Collector.
func (c *reserveCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descReserveChecked, descReserveHeadroom, descReserveFull, descReserveDrop} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *reserveCollector) Collect(ch chan<- prometheus.Metric) {
	at, services := c.reserves()
	if at.IsZero() {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descReserveChecked, float64(at.UnixNano())/1e9)
	for i := range services {
		r := &services[i]
		gauge(descReserveHeadroom, r.Headroom, r.Service)
		gauge(descReserveFull, r.Utilization, r.Service)
		gauge(descReserveDrop, r.Drop, r.Service)
	}
}
