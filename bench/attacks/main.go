// Command attacks lets clients that misbehave loose on `isobar serve`, one kind
// after the other, each on a process of its own, and prints how much memory the
// server took at most beside the budget that it has for messages of clients.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-xds/isobar/bench/internal/command"
	"github.com/isobar-xds/isobar/bench/internal/process"
	"github.com/isobar-xds/isobar/bench/internal/rawclient"
)

// budget is what the server lets messages of clients take. At most a quarter more
// may be resident, for all that the process holds.
const budget = 512 << 20

// most is how much the attack from so many addresses may make resident: a quarter more than the budget
// that it is about, not than the sum of all budgets.
func (a attack) most(addresses int) int64 {
	allowed := int64(budget)
	if addresses > 1 {
		allowed = max(allowed, a.shared)
	}
	return allowed / 4 * 5
}

func main() { command.Main("attacks", run) }

// options are the flags.
type options struct {
	isobar      string
	length      time.Duration
	connections int
	addresses   int
	tls         bool
	heap        bool
	ask         string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	flags := flag.NewFlagSet("attacks", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.isobar, "isobar", "bin/isobar", "the server's binary")
	flags.DurationVar(&o.length, "length", 15*time.Second, "time that each attack lasts")
	flags.IntVar(&o.connections, "connections", 10, "connections of an attack; each has up to 1,000 streams")
	flags.IntVar(&o.addresses, "addresses", 1, "addresses of the loopback interface from which the connections come; REST attacks use one for each")
	flags.BoolVar(&o.tls, "tls", false, "attack over TLS; REST attacks always do")
	flags.BoolVar(&o.heap, "heap", false, "print what the heap holds at the end of an attack")
	flags.StringVar(&o.ask, "ask", "", "only ask the server with this admin address whether it lives, until the input ends")
	match := flags.String("run", "", "run only the attacks that match this regular expression")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.ask != "" {
		return ask(ctx, o.ask, os.Stdin, stdout)
	}
	pattern, err := regexp.Compile(*match)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	_, _ = fmt.Fprintf(stdout, "%-22s %10s %10s %12s %12s %8s  %s\n",
		"attack", "resident", "at most", "connections", "slowest", "CPU", "what each connection does")
	failed := 0
	for _, a := range attacks() {
		if !pattern.MatchString(a.name) || ctx.Err() != nil {
			continue
		}
		found, err := o.measure(ctx, a, stderr)
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		verdict, limit := "", a.most(o.addressesOf(&a))
		if found.peak > limit || found.Failed > 0 {
			failed++
			verdict = " FAILED"
		}
		_, _ = fmt.Fprintf(stdout, "%-22s %6d MiB %6d MiB %12d %12v %7.1fs  %s%s\n",
			a.name, found.peak>>20, limit>>20, found.opened, found.Slowest.Round(time.Millisecond), found.cpu.Seconds(), a.what, verdict)
		if found.Failed > 0 {
			_, _ = fmt.Fprintf(stdout, "%d questions whether the server lives were not answered\n", found.Failed)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d attacks took more memory than they may, or the server did not answer", failed)
	}
	return ctx.Err()
}

// finding is what came of an attack.
type finding struct {
	answers

	peak   int64 // most that was ever resident, bytes
	opened int64 // connections, with those that took the place of closed ones
	cpu    time.Duration
}

func (o *options) measure(ctx context.Context, a attack, stderr io.Writer) (out finding, err error) {
	s, err := o.start(ctx, &a)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	asking, err := startAsker(s.Admin, stderr)
	if err != nil {
		return out, err
	}
	attacking, end := context.WithTimeout(ctx, o.length)
	defer end()
	var opened atomic.Int64
	var all sync.WaitGroup
	for i := range o.connections {
		way := s.way(i)
		if a.rest != nil {
			all.Go(func() { a.rest(&poller{ctx: attacking, way: way, address: s.rest, number: i, opened: &opened}) })
		} else {
			all.Go(func() { a.keepOn(attacking, way, s.XDS, &opened) })
		}
	}
	<-attacking.Done()
	if out.answers, err = asking.stop(); err != nil {
		return out, err
	}
	if o.heap {
		if text, err := s.Get(ctx, "/debug/pprof/heap?debug=1"); err == nil {
			_, _ = stderr.Write(text)
		}
	}
	used, err := process.UsageOf(s.PID())
	if err != nil {
		return out, err
	}
	out.cpu = used.CPU
	all.Wait()
	out.opened = opened.Load()
	out.peak, err = process.MostResident(s.PID())
	return out, err
}

// addressesOf is how many addresses an attack comes from.
func (o *options) addressesOf(a *attack) int {
	if a.rest != nil {
		return o.connections
	}
	return o.addresses
}

// keepOn attacks with one connection after the other.
func (a attack) keepOn(ctx context.Context, way *rawclient.Way, address string, opened *atomic.Int64) {
	for ctx.Err() == nil {
		conn, err := rawclient.NewAttacker(ctx, way, address, a.deaf)
		if err == nil {
			opened.Add(1)
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			if err = a.do(conn); err == nil {
				err = conn.Flush()
			}
			if err == nil { // hold what there is
				_ = conn.Wait(ctx) // ends with the connection, whatever the reason
			}
			stop()
			_ = conn.Close()
		}
		select { // as long as a library of gRPC would at least
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}
