// Command fleets shows what capacity from requests is worth. It plays random fleets
// with faults, simulated request by request from fresh seeds, beside a clairvoyant
// that knows all capacities and faults; and the scenario library with capacity_trust
// declared and observed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/bench/internal/command"
)

type options struct {
	fleets  int
	seed    uint64
	faults  *regexp.Regexp
	trusts  []isobar.CapacityTrust
	verbose bool
	library string
	only    *regexp.Regexp
	isobar  string
}

func main() { command.Main("fleets", run) }

func parse(args []string, stderr io.Writer) (*options, error) {
	var o options
	var faults, trust, only string
	flags := flag.NewFlagSet("fleets", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.fleets, "fleets", 46, "random fleets of each fault; 0 = none")
	flags.Uint64Var(&o.seed, "seed", uint64(time.Now().Unix()), "of the first fleet of each fault (default: the time)") //nolint:gosec // after 1970
	flags.StringVar(&faults, "faults", "", "play only the faults that match this regular expression")
	flags.StringVar(&trust, "trust", "", "capacity_trust of the fleets: declared or observed (default: both)")
	flags.BoolVar(&o.verbose, "v", false, "print a line for each fleet, and of each that misses an aim what plans went by")
	flags.StringVar(&o.library, "library", "", "directory of the scenario library, such as examples/scenarios (default: not played)")
	flags.StringVar(&only, "scenarios", "", "play only the files of the library that match this regular expression")
	flags.StringVar(&o.isobar, "isobar", "bin/isobar", "the program that plays the library")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if o.fleets < 0 || flags.NArg() > 0 {
		return nil, fmt.Errorf("want -fleets of 0 or more, and no arguments, not %d and %q", o.fleets, flags.Args())
	}
	o.trusts = isobar.CapacityTrusts()
	if trust != "" {
		t, err := isobar.ParseCapacityTrust(trust)
		if err != nil {
			return nil, err
		}
		o.trusts = []isobar.CapacityTrust{t}
	}
	var err error
	if o.faults, err = regexp.Compile(faults); err != nil {
		return nil, fmt.Errorf("-faults: %w", err)
	}
	if o.only, err = regexp.Compile(only); err != nil {
		return nil, fmt.Errorf("-scenarios: %w", err)
	}
	return &o, nil
}

func run(ctx context.Context, args []string, out, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.fleets > 0 {
		for _, trust := range o.trusts {
			if err := playFleets(ctx, o, trust, out); err != nil {
				return err
			}
		}
	}
	if o.library != "" {
		return playLibrary(ctx, o, out)
	}
	return nil
}
