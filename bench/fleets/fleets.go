package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
	"github.com/isobar-xds/isobar/internal/sim/randomfleet"
)

// Aims for random fleets, 20 ticks after a fault.
const (
	near       = 1.15  // of the clairvoyant's mean latency
	farthest   = 1.5   // the same, that no fleet may exceed
	moreFailed = 0.003 // of the requests, above the clairvoyant
	full       = 1.03  // utilization of a locality that is too much
)

// outcome is what one fleet came to.
type outcome struct {
	seed               uint64
	fault              randomfleet.Fault
	mean, best         float64 // ms, Isobar's and the clairvoyant's
	failed, bestFailed float64 // part of the requests
	overfull           int     // ticks with a locality above full
	sites              []belief
	done               bool
}

func (j *outcome) ratio() float64 { return j.mean / j.best }

// playFleets plays all fleets and writes a row for each fault.
func playFleets(ctx context.Context, o *options, trust isobar.CapacityTrust, out io.Writer) error {
	var jobs []outcome
	for _, f := range randomfleet.Faults() {
		if !o.faults.MatchString(string(f)) {
			continue
		}
		for i := range o.fleets {
			jobs = append(jobs, outcome{seed: o.seed + uint64(i), fault: f})
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wait sync.WaitGroup
	lines := progress{jobs: jobs, out: out}
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(jobs) {
					return
				}
				if err := jobs[i].play(ctx, trust); err != nil {
					cancel(err)
				} else if o.verbose {
					lines.finished(i)
				}
			}
		})
	}
	wait.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return writeFleets(o, trust, jobs, out)
}

// progress writes a line for each fleet as soon as all fleets before it are done, so that
// two runs write the same.
type progress struct {
	jobs []outcome
	out  io.Writer

	mu      sync.Mutex
	written int
}

func (p *progress) finished(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.jobs[i].done = true
	for p.written < len(p.jobs) && p.jobs[p.written].done {
		p.jobs[p.written].write(p.out)
		p.written++
	}
}

func (j *outcome) write(out io.Writer) {
	_, _ = fmt.Fprintf(out, "%-50s seed %d: mean %7.1f ms (%7.1f), ratio %.2f, %5.2f%% fail (%.2f%%), %d ticks overfull\n",
		j.fault, j.seed, j.mean, j.best, j.ratio(), 100*j.failed, 100*j.bestFailed, j.overfull)
	if j.missed() {
		j.writeReason(out)
	}
}

func (j *outcome) play(ctx context.Context, trust isobar.CapacityTrust) error {
	sc := randomfleet.New(j.seed, j.fault)
	sc.Topology.Services[0].CapacityTrust = trust
	j.begin(sc)
	is, err := sim.Run(ctx, sc, sim.Isobar(), func(f sim.Frame) error {
		if f.At > sc.Warmup {
			if f.Sample.Fullest > full {
				j.overfull++
			}
			j.believe(f.Plan)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s, seed %d: %w", j.fault, j.seed, err)
	}
	best, err := sim.Run(ctx, sc, clairvoyant(), nil)
	if err != nil {
		return fmt.Errorf("%s, seed %d: %w", j.fault, j.seed, err)
	}
	j.mean, j.failed, j.best, j.bestFailed = is.MeanMS, is.Failed, best.MeanMS, best.Failed
	j.compare(is, best)
	return nil
}

func clairvoyant() sim.Policy {
	all := sim.Policies()
	return all[slices.IndexFunc(all, func(p sim.Policy) bool { return p.Name == sim.NameClairvoyant })]
}

func writeFleets(o *options, trust isobar.CapacityTrust, jobs []outcome, out io.Writer) error {
	_, _ = fmt.Fprintf(out, "capacity_trust: %s (seeds from %d; mean latency against the clairvoyant, from 20 ticks after the fault on)\n", trust, o.seed)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "FAULT\tFLEETS\tMEDIAN\tWITHIN 15%\tWORST\tABOVE 1.5\tFAIL >0.3 MORE\tTICKS ABOVE 103%")
	for _, f := range randomfleet.Faults() {
		writeRow(t, string(f), slices.DeleteFunc(slices.Clone(jobs), func(j outcome) bool { return j.fault != f }))
	}
	writeRow(t, "all", jobs)
	return t.Flush()
}

func writeRow(out io.Writer, name string, jobs []outcome) {
	n := len(jobs)
	if n == 0 {
		return
	}
	var ratios []float64
	var overfull []int
	within, above, fails := 0, 0, 0
	for i := range jobs {
		j := &jobs[i]
		ratios, overfull = append(ratios, j.ratio()), append(overfull, j.overfull)
		if j.ratio() <= near {
			within++
		}
		if j.ratio() > farthest {
			above++
		}
		if j.failed > j.bestFailed+moreFailed {
			fails++
		}
	}
	slices.Sort(ratios)
	slices.Sort(overfull)
	_, _ = fmt.Fprintf(out, "%s\t%d\t%.3f\t%.0f%%\t%.2f\t%d\t%d\t%d\n",
		name, n, ratios[n/2], 100*float64(within)/float64(n), ratios[n-1], above, fails, overfull[n/2])
}
