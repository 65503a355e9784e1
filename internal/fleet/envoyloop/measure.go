package envoyloop

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
)

// Result is what one run of a scenario showed. Shares are fractions of requests,
// 0 to 1; times are in seconds from the begin of the fault.
type Result struct {
	Scenario string  `json:"scenario"`
	About    string  `json:"about"`
	Seed     uint64  `json:"seed"`
	Tick     float64 `json:"tick_seconds"`
	Fault    float64 `json:"fault_seconds"`

	Isobar System  `json:"isobar"`
	Alone  *System `json:"alone,omitempty"` // Envoys without Isobar

	Drops    *Drops   `json:"drops,omitempty"` // nil where nothing may be dropped
	Status   []Status `json:"status"`          // what the server said, each time that it said something else
	Away     float64  `json:"planned_away"`    // largest part of a source's requests that a plan sent to other zones than its own
	Misled   float64  `json:"misled_seconds"`  // how long it said that nothing needs attention while more than 1% of requests failed
	Machine  Machine  `json:"machine"`
	Verdicts []Aim    `json:"aims"`
}

// System is what clients of one system experienced.
type System struct {
	Requests  int     `json:"requests"`
	Before    float64 `json:"succeeded_before"` // shares of the requests that succeeded
	During    float64 `json:"succeeded_during"`
	LastThird float64 `json:"succeeded_last_third"` // of the fault
	After     float64 `json:"succeeded_after"`
	Later     float64 `json:"succeeded_later"` // after the fault, from the tick on in which drops must have ended
	Of        Parts   `json:"requests_of"`     // how many requests these are shares of

	Ticks []float64      `json:"succeeded_by_tick"`              // from the begin of the fault to the end
	Bad   [][]float64    `json:"bad_zone_by_tick"`               // by source and tick: share of its requests that went to the first zone
	Rest  []float64      `json:"bad_zone_after_third"`           // by source: the same over all ticks of the fault from the third after the first report of it
	Flags map[string]int `json:"failures_by_flag"`               // while the fault lasts, by response flags of Envoy
	From  []int          `json:"requests_after_third,omitempty"` // by source: what Rest is a share of
}

// Parts counts the requests of the parts of a run.
type Parts struct {
	During    int `json:"during"`
	LastThird int `json:"last_third"`
	After     int `json:"after"`
	Later     int `json:"later"`
}

// Drops is what clients dropped, by order of the server.
type Drops struct {
	Needed   float64   `json:"needed"`         // so that the rest fits below the ceilings
	Told     float64   `json:"told"`           // by the plans of the last third of the fault, mean
	Dropped  float64   `json:"dropped"`        // in the last third
	ByTick   []float64 `json:"told_by_tick"`   // from the begin of the fault
	EndTicks float64   `json:"ended_in_ticks"` // from the end of the fault to the last dropped request
}

// Status is what `isobar status` said from a time on.
type Status struct {
	At        float64  `json:"at"`
	OK        bool     `json:"ok"`
	Attention []string `json:"attention,omitempty"`
}

// sample is one look at the server.
type sample struct {
	at        time.Duration // since the start of the traffic
	ok        bool
	attention []string
	drop      float64 // told
	away      float64 // see Result.Away
}

// sampleEvery is how often the server is looked at.
const sampleEvery = 500 * time.Millisecond

// measure sends the traffic of the scenario through all systems at the same time.
func (r *runner) measure(whole context.Context) (*Result, error) {
	ctx, cancel := context.WithCancel(whole)
	defer cancel()
	o := r.options
	start := time.Now()
	usage := startUsage(r)
	var isobar, alone []Request
	var samples []sample
	var faults error
	var sending, beside sync.WaitGroup
	sending.Go(func() { isobar = r.send(ctx, r.isobar) })
	if r.alone != nil {
		sending.Go(func() { alone = r.send(ctx, r.alone) })
	}
	beside.Go(func() { samples = r.watch(ctx, start) })
	beside.Go(func() { faults = r.playFault(ctx, start) })
	sending.Wait()
	machine := usage.stop(isobar)
	cancel()
	beside.Wait()
	if err := errors.Join(whole.Err(), faults); err != nil {
		return nil, err
	}
	if len(isobar) == 0 || len(samples) == 0 {
		return nil, errors.New("no request was sent, or the server did not answer")
	}
	out := &Result{
		Scenario: r.scenario.Name, About: r.scenario.About, Seed: o.Seed, Tick: o.Tick.Seconds(), Fault: o.Fault.Seconds(),
		Isobar: r.system(isobar, r.isobar), Machine: machine,
	}
	if r.alone != nil {
		s := r.system(alone, r.alone)
		out.Alone = &s
	}
	out.Drops = r.drops(isobar, samples)
	out.Status, out.Misled = r.statuses(isobar, samples)
	for _, s := range samples {
		out.Away = max(out.Away, s.away)
	}
	out.Verdicts = r.judge(out)
	return out, nil
}

// playFault sets the fault at its time and takes it back.
func (r *runner) playFault(ctx context.Context, start time.Time) error {
	set := func(f Fault) error {
		err := r.isobar.set(f, r.scenario.Only)
		if r.alone != nil {
			err = errors.Join(err, r.alone.set(f, r.scenario.Only))
		}
		return err
	}
	if !wait(ctx, time.Until(start.Add(r.options.Warm))) {
		return nil
	}
	if err := set(r.scenario.Fault); err != nil {
		return err
	}
	if !wait(ctx, time.Until(start.Add(r.options.Warm+r.options.Fault))) {
		return nil
	}
	return set(Well)
}

// watch looks at the server until the context ends.
func (r *runner) watch(ctx context.Context, start time.Time) (out []sample) {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		status, err := r.server.Status(ctx)
		plan, err2 := r.server.Plan(ctx)
		if err == nil && err2 == nil {
			s := sample{at: time.Since(start), ok: status.OK, attention: admin.AttentionTexts(status.Attention)}
			for i := range plan.Services {
				s.drop = max(s.drop, plan.Services[i].Drop)
				s.away = max(s.away, plannedAway(&plan.Services[i]))
			}
			out = append(out, s)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return out
		}
	}
}

// plannedAway is the largest share of a source that a plan sends to other localities
// than its own.
func plannedAway(s *admin.ServiceView) (away float64) {
	for i := range s.Sources {
		for _, share := range s.Sources[i].Shares {
			if share.Locality != s.Sources[i].Source {
				away = max(away, share.Published)
			}
		}
	}
	return away
}

// tally counts requests.
type tally struct{ all, succeeded, failed, dropped, bad int }

func (t *tally) add(q *Request, bad bool) {
	t.all++
	switch q.Outcome {
	case Succeeded:
		t.succeeded++
	case Dropped:
		t.dropped++
	case Failed:
		t.failed++
	}
	if bad {
		t.bad++
	}
}

func share(part, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(part) / float64(of)
}

// system counts what became of the requests of one system.
func (r *runner) system(requests []Request, f *fleet) System {
	o := r.options
	length := o.Fault + o.After
	ticks := int((length + o.Tick - 1) / o.Tick)
	var before, during, last, after, later tally
	byTick := make([]tally, ticks)
	bad := make([][]tally, len(Zones))
	rest := make([]tally, len(Zones))
	for z := range bad {
		bad[z] = make([]tally, ticks)
	}
	out := System{Requests: len(requests), Flags: map[string]int{}}
	for i := range requests {
		q := &requests[i]
		zone, known := f.zoneOf[q.Upstream]
		there := known && zone == 0
		at := q.At - o.Warm // since the begin of the fault
		switch {
		case at < 0:
			before.add(q, there)
			continue
		case at < o.Fault:
			during.add(q, there)
			if at >= o.Fault*2/3 {
				last.add(q, there)
			}
			if at >= r.reaction() {
				rest[q.Source].add(q, there)
			}
			if q.Outcome == Failed {
				out.Flags[q.Flags]++
			}
		default:
			after.add(q, there)
			if at >= o.Fault+mostDropEnd*o.Tick {
				later.add(q, there)
			}
		}
		tick := min(int(at/o.Tick), ticks-1)
		byTick[tick].add(q, there)
		bad[q.Source][tick].add(q, there)
	}
	out.Before, out.During = share(before.succeeded, before.all), share(during.succeeded, during.all)
	out.LastThird, out.After = share(last.succeeded, last.all), share(after.succeeded, after.all)
	out.Later = share(later.succeeded, later.all)
	out.Of = Parts{During: during.all, LastThird: last.all, After: after.all, Later: later.all}
	for _, t := range byTick {
		out.Ticks = append(out.Ticks, share(t.succeeded, t.all))
	}
	for z := range bad {
		var line []float64
		for _, t := range bad[z] {
			line = append(line, share(t.bad, t.all))
		}
		out.Bad = append(out.Bad, line)
		out.Rest, out.From = append(out.Rest, share(rest[z].bad, rest[z].all)), append(out.From, rest[z].all)
	}
	return out
}

// reaction is the time from the begin of a fault to the end of the third tick
// after the first report of it.
func (r *runner) reaction() time.Duration { return r.options.ReportInterval + 3*r.options.Tick }

// drops compares what was dropped with what was needed.
func (r *runner) drops(requests []Request, samples []sample) *Drops {
	if r.scenario.MaxShed == 0 {
		return nil
	}
	o := r.options
	d := &Drops{Needed: r.scenario.needed()}
	var last tally
	end := time.Duration(0)
	for i := range requests {
		q := &requests[i]
		at := q.At - o.Warm
		if at >= o.Fault*2/3 && at < o.Fault {
			last.add(q, false)
		}
		if q.Outcome == Dropped {
			end = max(end, at-o.Fault)
		}
	}
	d.Dropped, d.EndTicks = share(last.dropped, last.all), end.Seconds()/o.Tick.Seconds()
	told, n := 0.0, 0
	d.ByTick = make([]float64, int((o.Fault+o.After+o.Tick-1)/o.Tick))
	for _, s := range samples {
		at := s.at - o.Warm
		if at >= o.Fault*2/3 && at < o.Fault {
			told, n = told+s.drop, n+1
		}
		if at >= 0 {
			d.ByTick[min(int(at/o.Tick), len(d.ByTick)-1)] = s.drop // the last of a tick
		}
	}
	if n > 0 {
		d.Told = told / float64(n)
	}
	return d
}

// statuses returns what the server said, and how long that misled: it said that
// nothing needs attention though more than 1% of requests failed, both of those that
// reports had to show by then and of the newest.
func (r *runner) statuses(requests []Request, samples []sample) (out []Status, misled float64) {
	o := r.options
	known := o.ReportInterval + o.Tick + time.Second // a request may take as long as the route's timeout until it has failed
	failing := func(from, to time.Duration) bool {
		var t tally
		for i := range requests {
			if q := &requests[i]; q.At >= from && q.At < to {
				t.add(q, false)
			}
		}
		return t.all > 0 && share(t.failed, t.all) > 0.01
	}
	for i, s := range samples {
		if i == 0 || s.ok != samples[i-1].ok || !slices.Equal(s.attention, samples[i-1].attention) {
			out = append(out, Status{At: (s.at - o.Warm).Seconds(), OK: s.ok, Attention: s.attention})
		}
		if s.ok && failing(s.at-known-3*o.Tick, s.at-known) && failing(s.at-2*o.Tick, s.at-time.Second) {
			misled += sampleEvery.Seconds()
		}
	}
	return out, misled
}
