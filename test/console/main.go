// Command console runs the demo's fleet with a real server until its standard input
// ends, for the browser tests of the console. Clients and checkers that behave badly are
// part of the fleet. Beside it run a server that wants a token, one that wants
// certificates, and a group of three replicas. It prints their addresses as one line of
// JSON. Of the lines on standard input, "inject" starts a client and a checker with names
// that hold markup, "surge" starts a client that triples the demand of a service, "restart"
// restarts the server that wants a token, and "lose" stops a replica; each is answered
// with a line.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
)

// markup is what a page that writes names as HTML would run.
const markup = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`

func main() {
	if err := run(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "console fleet:", err)
		os.Exit(1)
	}
}

// addresses is what the program prints first.
type addresses struct {
	kept
	secured

	Fleet string   `json:"fleet"` // address of the console, as all
	Group []string `json:"group"` // one for each replica
}

func run(ctx context.Context, stdin io.Reader, stdout io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "isobar-console-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithCancel(ctx)
	parts := &parts{ctx: ctx}
	defer func() {
		cancel()
		err = errors.Join(err, parts.wait())
	}()
	var out addresses
	conn, console, err := parts.startFleet()
	if err != nil {
		return err
	}
	out.Fleet = console
	keeper, err := parts.startKept(dir)
	if err != nil {
		return err
	}
	out.kept = keeper.kept
	if out.secured, err = parts.startSecured(dir); err != nil {
		return err
	}
	group, err := parts.startGroup(dir)
	if err != nil {
		return err
	}
	out.Group = group.addresses
	enc := json.NewEncoder(stdout)
	if err := enc.Encode(out); err != nil {
		return err
	}
	for lines := bufio.NewScanner(stdin); lines.Scan(); {
		switch lines.Text() {
		case "inject":
			err = parts.inject(conn)
		case "surge":
			err = parts.surge(conn)
		case "restart":
			err = keeper.restart()
		case "lose":
			err = group.lose()
		}
		if err != nil {
			return err
		}
		if err := enc.Encode("done"); err != nil {
			return err
		}
	}
	return nil
}

// startFleet starts the demo's fleet with its server, and those that behave badly.
func (p *parts) startFleet() (conn *grpc.ClientConn, console string, err error) {
	var xds string
	var topology *isobar.Topology
	start := func(ctx context.Context, t *isobar.Topology, s *fleet.Scenario) (fleet.Management, error) {
		m, err := fleet.ServeIsobar(ctx, t, s)
		if err == nil {
			xds, topology = m.XDSAddress(), t
		}
		return m, err
	}
	r, err := fleet.Start(p.ctx, quarter(), isobar.ModeFull, start)
	if err != nil {
		return nil, "", err
	}
	p.closers = append(p.closers, r.Close)
	if conn, err = p.dial(xds); err != nil {
		return nil, "", err
	}
	if err := p.addServices(r.Admin(), conn); err != nil {
		return nil, "", err
	}
	return conn, "http://" + r.Admin() + "/ui/", p.misbehave(conn, topology)
}

func (p *parts) dial(address string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		p.closers = append(p.closers, conn.Close)
	}
	return conn, err
}

// quarter is the demo's fleet with a quarter of its requests, so that a machine that
// is busy with a browser keeps up with them.
func quarter() fleet.Scenario {
	s := fleet.DefaultScenario()
	s.ServiceTime *= 4
	s.MaxQueue /= 4
	s.Step.Rate /= 4
	for i := range s.Zones {
		s.Zones[i].Rate /= 4
	}
	return s
}

// demandOf is a steady demand that breathes by a tenth over two minutes.
func demandOf(rate float64) func(string, time.Time) float64 {
	return func(service string, now time.Time) float64 {
		return rate * (1 + 0.1*wave(now.Add(time.Duration(len(service))*7*time.Second), 2*time.Minute))
	}
}

// wave runs from -1 to 1 and back over a period.
func wave(now time.Time, period time.Duration) float64 {
	x := float64(now.UnixNano()%period.Nanoseconds()) / float64(period.Nanoseconds())
	if x > 0.5 {
		x = 1 - x
	}
	return 4*x - 1
}
