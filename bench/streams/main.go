// Command streams runs `isobar serve` with its default limits. Fleets of `isobar bench`
// open a stream for each service, as clients do that have no stream for all. It prints
// when all clients have their assignments, and the memory and CPU of the server.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/bench/internal/command"
	"github.com/isobar-xds/isobar/bench/internal/process"
)

func main() { command.Main("streams", run) }

// fleet describes the clients that connect.
type fleet struct {
	name        string
	streams     string // as --streams of isobar bench
	clients     int
	connections int
	each        int // services of a client
}

var fleets = []fleet{
	{"500 Envoys with ADS", "shared", 500, 500, 40},
	{"500 Envoys, EDS outside ADS", "eds", 500, 500, 40},
	{"1,000 gRPC processes with 20 targets each", "ads", 1000, 1000, 20},
}

// options are the flags.
type options struct {
	isobar   string
	services int
	hold     time.Duration
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	flags := flag.NewFlagSet("streams", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.isobar, "isobar", "bin/isobar", "the binary of server and clients")
	flags.IntVar(&o.services, "services", 200, "services that the server has, in 4 localities of 5 endpoints each")
	flags.DurationVar(&o.hold, "hold", 20*time.Second, "how long a fleet stays before it loses all its connections")
	match := flags.String("run", "", "run only the fleets that match this regular expression")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pattern, err := regexp.Compile(*match)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	_, _ = fmt.Fprintf(stdout, "| Fleet | Clients | Streams | First assignment: p50, p99, last | The same after the loss of all connections "+
		"| Resident memory | CPU |\n"+
		"|---|---|---|---|---|---|---|\n")
	for _, f := range fleets {
		if !pattern.MatchString(f.name) || ctx.Err() != nil {
			continue
		}
		if err := o.measure(ctx, f, stdout, stderr); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return ctx.Err()
}

// arrival and result are what `isobar bench -o json` prints of interest.
type arrival struct {
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	MaxMS float64 `json:"max_ms"`
}

type result struct {
	FirstEDS  arrival  `json:"first_eds"`
	Reconnect *arrival `json:"reconnect"`
}

func (a *arrival) String() string {
	return fmt.Sprintf("%.2f s, %.2f s, %.2f s", a.P50MS/1e3, a.P99MS/1e3, a.MaxMS/1e3)
}

// measure connects a fleet to a server of its own. A fleet that is not served whole
// is an error.
func (o *options) measure(ctx context.Context, f fleet, stdout, stderr io.Writer) (err error) {
	s, err := process.StartIsobar(ctx, process.IsobarOptions{Binary: o.isobar, Config: config(o.services), Stdout: io.Discard, Stderr: stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	looked := make(chan error, 1)
	var at sight
	go func() {
		var err error
		at, err = o.look(ctx, s, f)
		looked <- err
	}()
	cmd := exec.CommandContext(ctx, o.isobar, "bench", "--server", s.XDS, "-o", "json", //nolint:gosec // a flag
		"--clients", strconv.Itoa(f.clients), "--connections", strconv.Itoa(f.connections), "--addresses", strconv.Itoa(f.clients),
		"--subscribe", strconv.Itoa(f.each), "--streams", f.streams, "--duration", (2 * o.hold).String(), "--reconnect")
	cmd.Stderr = stderr
	out, err := cmd.Output()
	if err = errors.Join(err, <-looked); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	var r result
	if err := json.Unmarshal(out, &r); err != nil {
		return err
	}
	peak, err := process.MostResident(s.PID())
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(stdout, "| %s | %d | %d | %s | %s | %d MiB, at most %d | %.0f%% of a core |\n", f.name, at.clients, at.streams,
		&r.FirstEDS, r.Reconnect, at.resident>>20, peak>>20, 100*at.cores)
	return nil
}

// sight is what the server says and takes while a fleet is connected.
type sight struct {
	clients, streams int
	resident         int64   // bytes
	cores            float64 // that it uses
}

// look waits until all streams are open, and watches the server for half of the
// time that the fleet stays.
func (o *options) look(ctx context.Context, s *process.Isobar, f fleet) (out sight, err error) {
	want := f.clients
	if f.streams != "shared" {
		want *= f.each
	}
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(o.hold); ; {
		open, err := s.Counter(ctx, "isobar_xds_streams")
		if err != nil {
			return out, err
		}
		if int(open) >= want {
			break
		}
		if time.Now().After(deadline) {
			return out, fmt.Errorf("%.0f of %d streams are open after %s", open, want, o.hold)
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-ticker.C:
		}
	}
	before, err := process.UsageOf(s.PID())
	if err != nil {
		return out, err
	}
	timer := time.NewTimer(o.hold / 2)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return out, ctx.Err()
	case <-timer.C:
	}
	after, err := process.UsageOf(s.PID())
	if err != nil {
		return out, err
	}
	out.resident, out.cores = after.RSS, (after.CPU-before.CPU).Seconds()/after.At.Sub(before.At).Seconds()
	data, err := s.Get(ctx, "/v1/status")
	if err != nil {
		return out, err
	}
	var status struct {
		Clients struct {
			Total   int `json:"total"`
			Streams int `json:"streams"`
			InSync  int `json:"in_sync"`
		} `json:"clients"`
	}
	if err := json.Unmarshal(data, &status); err != nil {
		return out, err
	}
	out.clients, out.streams = status.Clients.Total, status.Clients.Streams
	if c := status.Clients; c.Total != f.clients || c.Streams != want || c.InSync != c.Total {
		return out, fmt.Errorf("the server counts %+v, want %d clients in sync on %d streams", c, f.clients, want)
	}
	return out, nil
}

// config is YAML of so many services.
func config(services int) string {
	var b strings.Builder
	b.WriteString("services:\n")
	for i := range services {
		fmt.Fprintf(&b, "- name: service-%d\n  localities:\n", i)
		for z, zone := range []string{"us/a", "us/b", "eu/a", "eu/b"} {
			fmt.Fprintf(&b, "  - locality: %s\n    max_rate: 1000\n    endpoints: [", zone)
			for e := range 5 {
				fmt.Fprintf(&b, "%q, ", fmt.Sprintf("10.%d.%d.%d:80", z, i, e+1))
			}
			b.WriteString("]\n")
		}
	}
	return b.String()
}
