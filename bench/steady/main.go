package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/isobar-xds/isobar/bench/internal/command"
	"github.com/isobar-xds/isobar/bench/internal/process"
	"github.com/isobar-xds/isobar/internal/loadgen"
)

// options are the flags.
type options struct {
	isobar      string
	clients     int
	connections int
	checkers    int
	services    int
	subscribe   int
	warmup      time.Duration
	duration    time.Duration
	profiles    string
	replicas    int
	at          string
	cpu         string
}

// Where clients of a group connect: options.at.
const (
	atAll    = "all"    // to all replicas in turn
	atLeader = "leader" // to the leader
)

func main() { command.Main("steady", run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	flags := flag.NewFlagSet("steady", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.isobar, "isobar", "bin/isobar", "the server's binary")
	flags.IntVar(&o.clients, "clients", 5000, "clients, each with a stream for discovery and one for load reports")
	flags.IntVar(&o.connections, "connections", 100, "connections that the clients share")
	flags.IntVar(&o.checkers, "checkers", 100, "health checkers")
	flags.IntVar(&o.services, "services", 1000, "services, of 100 endpoints in 10 zones")
	flags.IntVar(&o.subscribe, "subscribe", 15, "services of each client")
	flags.DurationVar(&o.warmup, "warmup", time.Minute, "time for the fleet to connect and settle")
	flags.DurationVar(&o.duration, "duration", 10*time.Minute, "time that is measured")
	flags.StringVar(&o.profiles, "profiles", "", "write profiles of the server to this directory: CPU over 30 s, and heap")
	flags.IntVar(&o.replicas, "replicas", 1, "replicas of a group on this machine; the leader is measured")
	flags.StringVar(&o.at, "at", atAll, "replicas that clients and checkers connect to: all, or the leader alone")
	flags.StringVar(&o.cpu, "cpu", "", "processor of the measured server, for taskset; empty: those of this command")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.clients < 1 || o.services < 1 || o.checkers < 0 || o.duration < 2*interval || o.warmup < interval || o.replicas < 1 {
		return fmt.Errorf("want at least 1 client, 1 service, 1 replica, a warm-up of %v and a duration of %v", interval, 2*interval)
	}
	if o.at != atAll && o.at != atLeader {
		return fmt.Errorf("-at %q: want %s or %s", o.at, atAll, atLeader)
	}
	runtime.GOMAXPROCS(1) // the other core is the server's
	return measure(ctx, &o, stdout, stderr)
}

// measure runs server and fleet, and prints what it found.
func measure(ctx context.Context, o *options, stdout, stderr io.Writer) (err error) {
	s, err := startServer(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	f := &fleet{opts: o, server: s}
	if err := f.publish(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var background, metering sync.WaitGroup
	defer background.Wait()
	defer metering.Wait()
	defer cancel()
	if err := f.startCheckers(ctx, &background); err != nil {
		return err
	}
	began := time.Now()
	m := &meter{server: s, from: began.Add(o.warmup), to: began.Add(o.warmup + o.duration), log: stderr}
	metering.Go(func() { m.run(ctx, o.profiles) })
	background.Go(func() { f.change(ctx, m.to) })
	clients, err := loadgen.Run(ctx, loadgen.Options{
		Target: s.clients, Clients: o.clients, Connections: o.connections, Subscribe: o.subscribe, Localities: allZones(),
		RateOf: f.rateOf, Ramp: o.warmup / 3, Duration: o.warmup + o.duration, Reconnect: true,
		Progress: func(p loadgen.Progress) { m.progress.Store(&p) },
	})
	if err != nil {
		return err
	}
	checkers, err := s.total(ctx, "isobar_hds_checkers")
	if err != nil {
		return err
	}
	metering.Wait()
	if m.most, err = process.MostResident(s.PID()); err != nil {
		return err
	}
	cancel()
	background.Wait()
	return report(stdout, o, m, f, &clients, checkers)
}
