package control

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/plan"
)

// surveyRest is how many times as long as it played the survey rests: it takes
// at most a tenth of a core, in one goroutine, and streams go first.
const surveyRest = 9

// reserves is what a round of the survey found. Immutable.
type reserves struct {
	at       time.Time // of the plan that it looked at
	services []plan.Reserve
}

// Reserves tells how each service stands the loss of its worst zone, and when
// that was so; zero before the first round, and while there are none.
func (l *Loop) Reserves() (at time.Time, services []plan.Reserve) {
	if r := l.reserves.Load(); r != nil {
		return r.at, r.services
	}
	return time.Time{}, nil
}

// Survey plays the loss of each zone again and again, a round at each
// Options.SurveyEvery, until ctx ends. It runs beside the loop and only reads.
func (l *Loop) Survey(ctx context.Context) {
	every := func() time.Duration {
		if l.opts.SurveyEvery == nil {
			return 0
		}
		return l.opts.SurveyEvery()
	}
	last := time.Now()
	for l.restUntilSurvey(ctx, last, every) {
		if err := l.surveyRound(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, errLeft) {
			l.log.Warn("the check for the loss of zones failed; the next one tries again", "error", err)
		}
		last = time.Now()
	}
}

// restUntilSurvey waits until a round is due, which a reload may bring nearer or
// farther: the interval counts from the last round on. While there are none,
// nothing is told of those before. It gives false when ctx ended.
func (l *Loop) restUntilSurvey(ctx context.Context, last time.Time, every func() time.Duration) bool {
	for {
		interval := every()
		var due <-chan time.Time // never, where it is off
		if interval > 0 {
			due = time.After(time.Until(last.Add(interval)))
		} else {
			l.reserves.Store(nil)
		}
		select {
		case <-ctx.Done():
			return false
		case <-due:
			return true
		case <-l.resurvey:
		}
	}
}

// rest waits; false when ctx ended.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (l *Loop) surveyRound(ctx context.Context) error {
	topology, operators := l.opts.Topology.State()
	turn, err := l.turn(ctx, topology, operators)
	if err != nil {
		return err
	}
	survey := plan.NewSurvey(turn, l.timing().Tick)
	var failed error
	for more := true; more; {
		began := time.Now()
		if more, err = l.surveyStep(survey); err != nil {
			failed = err
		}
		if spent := time.Since(began); !rest(ctx, surveyRest*spent) {
			return ctx.Err()
		}
	}
	l.reserves.Store(&reserves{at: turn.Now, services: survey.Reserves()})
	return failed
}

// surveyStep plays a loss. An internal error costs the services that it was played for.
func (l *Loop) surveyStep(s *plan.Survey) (more bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			l.metrics.panics.Inc()
			l.log.Error("playing a loss failed", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			s.Skip()
			more, err = true, errors.New("an internal error")
		}
	}()
	return s.Step()
}

// reserveCollector shows what the survey found. Labels are bounded by the
// configuration.
type reserveCollector struct {
	reserves func() (time.Time, []plan.Reserve)
}

var (
	descReserveChecked = prometheus.NewDesc("isobar_n1_check_timestamp_seconds",
		"When the plan was made that the loss of zones was last played for, Unix time.", nil, nil)
	descReserveHeadroom = prometheus.NewDesc("isobar_n1_headroom_ratio",
		"Part of what the ceilings allow that stays free after the worst loss of a zone; below 0 the demand does not fit.", perService, nil)
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
