// Command observed shows what capacity from requests is worth: random fleets with
// faults and single requests, from fresh seeds, beside a clairvoyant that knows
// all; the scenario library with capacity_trust declared and observed; and
// stations, by which the simulator's rates are compared with single requests.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"time"

	"github.com/isobar-xds/isobar"
)

type options struct {
	fleets   int
	seed     uint64
	faults   *regexp.Regexp
	trust    isobar.CapacityTrust
	verbose  bool
	library  string
	isobar   string
	stations bool
}

func main() {
	var o options
	var faults, trust string
	flag.IntVar(&o.fleets, "fleets", 46, "random fleets of each fault; 0 = none")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().Unix()), "of the first fleet") //nolint:gosec // after 1970
	flag.StringVar(&faults, "faults", "", "play only the faults that match this regular expression")
	flag.StringVar(&trust, "trust", string(isobar.TrustObserved), "capacity_trust of the fleets")
	flag.BoolVar(&o.verbose, "v", false, "tell of each fleet")
	flag.StringVar(&o.library, "library", "examples/scenarios", "directory of the scenario library; empty = not played")
	flag.StringVar(&o.isobar, "isobar", "bin/isobar", "the program that plays the library")
	flag.BoolVar(&o.stations, "stations", true, "compare rates with single requests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := o.parse(faults, trust)
	if err == nil {
		err = run(ctx, &o, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "observed:", err)
		os.Exit(1)
	}
}

func (o *options) parse(faults, trust string) error {
	var err error
	if o.trust, err = isobar.ParseCapacityTrust(trust); err != nil {
		return err
	}
	if o.faults, err = regexp.Compile(faults); err != nil {
		return fmt.Errorf("-faults: %w", err)
	}
	if o.fleets < 0 {
		return fmt.Errorf("-fleets %d: want 0 or more", o.fleets)
	}
	return nil
}

func run(ctx context.Context, o *options, out io.Writer) error {
	if o.fleets > 0 {
		if err := playFleets(ctx, o, out); err != nil {
			return err
		}
	}
	if o.stations {
		if err := playStations(ctx, out); err != nil {
			return err
		}
	}
	if o.library != "" {
		return playLibrary(ctx, o, out)
	}
	return nil
}
