// Command widefleet lets `isobar simulate` run a wide fleet for a virtual hour and
// tells how much faster than real time that is: 1,000 services in 10 each of 200
// localities, with clients in the same localities, where the demand for 5% of
// the services changes at every tick. With -print it only writes the scenario.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/isobar-xds/isobar/bench/internal/command"
)

// wantSpeed is how many times faster than real time it should be, on 2 cores.
const wantSpeed = 20

type options struct {
	isobar           string
	services, places int
	length           time.Duration
	print            bool
}

func main() { command.Main("widefleet", run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o := &options{}
	flags := flag.NewFlagSet("widefleet", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.isobar, "isobar", "bin/isobar", "the program to measure")
	flags.IntVar(&o.services, "services", 1000, "services")
	flags.IntVar(&o.places, "localities", 200, "localities, of which each service has 10")
	flags.DurationVar(&o.length, "length", time.Hour, "virtual time")
	flags.BoolVar(&o.print, "print", false, "write the scenario to standard output and run nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.services < 1 || o.places < 10 {
		return fmt.Errorf("%d services in %d localities: want at least 1 and 10", o.services, o.places)
	}
	if o.print {
		_, err := stdout.Write(scenario(o))
		return err
	}
	dir, err := os.MkdirTemp("", "isobar-widefleet-")
	if err != nil {
		return err
	}
	defer func() {
		if e := os.RemoveAll(dir); err == nil {
			err = e
		}
	}()
	file := filepath.Join(dir, "wide-fleet.yaml")
	if err := os.WriteFile(file, scenario(o), 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, o.isobar, "simulate", file, "--policy", "isobar") //nolint:gosec // what to measure is the user's choice
	cmd.Stdout, cmd.Stderr = stdout, stderr
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return err
	}
	took := time.Since(began)
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	speed := o.length.Seconds() / took.Seconds()
	_, err = fmt.Fprintf(stdout, "%v of %d services in %v: %.1f times faster than real time; %v of processor time on %d cores\n",
		o.length, o.services, took.Round(time.Millisecond), speed, used.Round(time.Millisecond), runtime.NumCPU())
	if err == nil && speed < wantSpeed {
		err = fmt.Errorf("%.1f times faster than real time is less than the %d that are wanted on 2 idle cores", speed, wantSpeed)
	}
	return err
}
