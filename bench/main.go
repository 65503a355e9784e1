// Command bench measures what Isobar costs beside go-control-plane's
// LinearCache and beside the least that a server on grpc-go can cost. Servers
// run in processes of their own on one core each and are measured in turn, so
// that what the machine does meanwhile meets all of them.
//
// It prints results in Go's benchmark format, for benchstat, and medians to
// standard error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/bench/internal/fleet"
	"github.com/isobar-xds/isobar/bench/internal/measure"
	"github.com/isobar-xds/isobar/bench/internal/process"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// scenario is what can be run.
type scenario interface {
	Name() string
	Run(ctx context.Context, rounds int, report func(measure.Result)) error
}

func scenarios(isobar, profiles *string) []scenario {
	push := []string{"isobar", "linear", "floor"}
	load := []string{"lrs-isobar", "lrs-decode", "lrs-none"}
	return []scenario{
		// isobar serve itself, seen from outside.
		&measure.Serve{
			Isobar: isobar, Profiles: profiles, Endpoints: fleet.Few,
			Streams: 5000, PerConnection: 100, Subscriptions: 100, Changes: 40, Servers: []string{"isobar", "floor"},
		},
		&measure.ServeLoad{
			Isobar: isobar, Clusters: 10, Streams: 5000, PerConnection: 100, Interval: time.Second, Length: 5 * time.Second, Servers: load,
		},
		&measure.Push{Streams: 1000, PerConnection: 100, Subscriptions: 10, Changes: 40, Servers: push},
		&measure.Push{Streams: 1000, PerConnection: 100, Subscriptions: 100, Changes: 30, Servers: push},
		&measure.Push{Streams: 5000, PerConnection: 100, Subscriptions: 100, Changes: 60, Servers: push},
		&measure.Push{Streams: 5000, PerConnection: 100, Subscriptions: 10, Changes: 20, Servers: []string{"isobar", "isobar-mixed"}},
		&measure.Push{Streams: 5000, PerConnection: 1, Subscriptions: 10, Changes: 8, Servers: push},
		&measure.Hostile{Streams: 1000, PerConnection: 100, Subscriptions: 100, Changes: 200, Servers: []string{"isobar"}},
		&measure.Hostile{Streams: 900, PerConnection: 100, Subscriptions: 100, Mute: 100, Changes: 600, Servers: []string{"isobar"}},
		&measure.Hostile{Streams: 1000, PerConnection: 100, Subscriptions: 100, Resets: 1000, Changes: 200, Servers: []string{"isobar"}},
		&measure.Load{Clusters: 10, Streams: 1000, PerConnection: 100, Reports: 40_000, Servers: load},
		&measure.Load{Clusters: 10, Nodes: true, Streams: 1000, PerConnection: 1, Reports: 10_000, Servers: load},
		&measure.Load{Clusters: 100, Streams: 1000, PerConnection: 100, Reports: 10_000, Servers: load},
		&measure.Load{Clusters: 100, Endpoints: true, Streams: 200, PerConnection: 50, Reports: 600, Servers: load},
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	if len(args) == 2 && args[0] == "serve" {
		in, err := process.Input(os.Stdin)
		if err != nil {
			return err
		}
		return process.Run(args[1], in, stdout)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	rounds := flags.Int("rounds", 5, "rounds to measure, after one to warm up")
	match := flags.String("run", "", "run only the scenarios that match this regular expression")
	profiles := flags.String("profiles", "", "write CPU and heap profiles of the servers to this directory")
	isobar := flags.String("isobar", "bin/isobar", "the program of which `isobar serve` is measured")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pattern, err := regexp.Compile(*match)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if *rounds < 1 {
		return errors.New("-rounds: want at least 1")
	}
	if err := os.Setenv(process.ProfilesEnv, *profiles); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	runtime.GOMAXPROCS(1) // one core for the clients, one for the server
	_, _ = fmt.Fprintf(stdout, "goos: %s\ngoarch: %s\npkg: github.com/isobar-xds/isobar/bench\ncpu: %s\n", runtime.GOOS, runtime.GOARCH, cpu())
	var all measure.Summary
	for _, s := range scenarios(isobar, profiles) {
		if !pattern.MatchString(s.Name()) {
			continue
		}
		begun := time.Now()
		if err := s.Run(ctx, *rounds, func(r measure.Result) { all.Add(r); _, _ = fmt.Fprintln(stdout, r) }); err != nil {
			return fmt.Errorf("%s: %w", s.Name(), err)
		}
		_, _ = fmt.Fprintf(stderr, "%s: %.0f s, load %s\n", s.Name(), time.Since(begun).Seconds(), load())
	}
	return all.Write(stderr)
}

// cpu names the processor, as far as the system tells.
func cpu() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.Trim(name, " \t:\n")
		}
	}
	return runtime.GOARCH
}

// load is what else the machine does.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}
