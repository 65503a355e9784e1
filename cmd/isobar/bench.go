package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/loadgen"
)

// benchFlags are the flags of `isobar bench`.
type benchFlags struct {
	options    loadgen.Options
	localities []string
	yes        bool
	insecure   bool
	tls        identity.DialFiles
	output     outputFormat
}

// errBench says that the run went through, but that not every client was served.
var errBench = errors.New("some clients were not served correctly")

func benchCommand() *cobra.Command {
	var flags benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Load a running server with synthetic clients, and measure at the clients",
		Long: `Connect synthetic xDS clients to a running server, and measure at the clients: the time
to the first assignment, the time between the first and the last client that gets a
change, and, with --reconnect, the time to the first assignment after all connections
were lost at once. The exit status is 0 only if every client got all its assignments.

Each client subscribes to some services on an aggregated stream (ADS), or with
--streams on one stream for each service. It also has a load report stream (LRS), and
reports as often as the server requests. Its reports are empty unless --rate is given.

The clients are real load: they use connections, streams and memory of the
server, and count in its metrics. For a server on another machine, the command
needs --yes. --rate reports requests that no client sent, and the server moves weights
because of them. Do not use --rate with a server that has other clients.`,
		Example: "  isobar bench --clients 5000 --duration 1m --reconnect\n" +
			"  isobar bench --server isobar.example:18000 --ca ca.pem --yes --clients 200 -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runBench(cmd.Context(), &flags, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o, f := &flags.options, cmd.Flags()
	f.StringVar(&o.Target, "server", "127.0.0.1:18000", "the server's xDS address, HOST:PORT")
	f.IntVar(&o.Clients, "clients", 100, "clients, each with a stream for discovery and one for load reports")
	f.IntVar(&o.Connections, "connections", 0, "TCP connections for all clients (default: one for 50 clients)")
	f.IntVar(&o.Addresses, "addresses", 0, "addresses of 127.0.0.0/8 to connect from to a server on this machine (Linux), because limits count by address")
	f.StringSliceVar(&flags.localities, "localities", nil, "where the clients are: region/zone,... (default: where services have endpoints)")
	f.StringSliceVar(&o.Services, "services", nil, "services to subscribe to (default: all services of the server)")
	f.IntVar(&o.Subscribe, "subscribe", loadgen.DefaultSubscribe, "services of each client")
	f.StringVar((*string)(&o.Streams), "streams", string(loadgen.SharedADS),
		"discovery streams of a client: shared (one for all services), ads (one for each service, as grpc-java, gRPC C++ and Python)"+
			" or eds (one for each service, as Envoys outside ADS)")
	f.Float64Var(&o.Rate, "rate", 0, "requests/s that each client reports, over all its services; moves weights")
	f.DurationVar(&o.Ramp, "ramp", 5*time.Second, "time over which the clients connect")
	f.DurationVar(&o.Duration, "duration", 30*time.Second, "duration of the run, from the connection of the first client")
	f.BoolVar(&o.Reconnect, "reconnect", false, "then close all connections, and let all clients reconnect at once")
	f.DurationVar(&o.Patience, "patience", loadgen.DefaultPatience, "how long to wait for the last client's first assignment")
	f.BoolVar(&flags.yes, "yes", false, "load a server that is not on this machine")
	f.StringVar(&flags.tls.CA, "ca", "", "authorities (PEM) that sign the server's certificate; with it the connections use TLS")
	f.StringVar(&flags.tls.Cert, "cert", "", "certificate (PEM) that the clients show to the server")
	f.StringVar(&flags.tls.Key, "key", "", "the key of --cert (PEM)")
	f.BoolVar(&flags.insecure, "insecure", false, "connect without TLS to a server that is not on this machine")
	flags.output.register(cmd)
	return cmd
}

func runBench(ctx context.Context, flags *benchFlags, stdout, stderr io.Writer) error {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	if err := flags.complete(log); err != nil {
		return err
	}
	if flags.options.Rate > 0 {
		_, _ = fmt.Fprintf(stderr, "warning: %d clients claim %v requests/s each that nobody sends; the server moves weights by them\n",
			flags.options.Clients, flags.options.Rate) // nobody to tell
	}
	show := newBenchProgress(stderr)
	flags.options.Progress = show.progress
	result, err := loadgen.Run(ctx, flags.options)
	show.end()
	if err != nil {
		return err
	}
	if flags.output == outputJSON {
		err = writeJSON(stdout, &result)
	} else {
		_, err = io.WriteString(stdout, benchText(&result))
	}
	if err == nil && !result.OK() {
		err = errBench
	}
	return err
}

// complete turns the flags into options.
func (f *benchFlags) complete(log *slog.Logger) error {
	host, _, err := hostPort("--server", f.options.Target)
	if err != nil {
		return err
	}
	if !f.yes && !onLoopback(host) {
		return usagef("--server %q is not on this machine: give --yes to load it with %d clients", f.options.Target, f.options.Clients)
	}
	if f.options.Credentials, err = dialCredentials("--server", f.options.Target, f.tls, f.insecure, log); err != nil {
		return err
	}
	f.options.Hint = identity.TLSHint
	for _, text := range f.localities {
		l, err := isobar.ParseLocality(text)
		if err != nil {
			return usagef("--localities: %w", err)
		}
		f.options.Localities = append(f.options.Localities, l)
	}
	switch {
	case f.options.Addresses < 0 || f.options.Addresses > loadgen.MaxAddresses:
		return usagef("--addresses %d, want 0 to %d", f.options.Addresses, loadgen.MaxAddresses)
	case f.options.Addresses > 0 && !onLoopback(host):
		return usagef("--addresses are of this machine, and --server %q is not", f.options.Target)
	case f.options.Subscribe < 1:
		return usagef("--subscribe %d, want at least 1", f.options.Subscribe)
	case f.options.Streams != loadgen.SharedADS && f.options.Streams != loadgen.EachADS && f.options.Streams != loadgen.EachEDS:
		return usagef("--streams %q, want %s, %s or %s", f.options.Streams, loadgen.SharedADS, loadgen.EachADS, loadgen.EachEDS)
	case !(f.options.Rate >= 0 && f.options.Rate <= loadgen.MaxRate): // nor NaN
		return usagef("--rate %v, want 0 to %v requests/s", f.options.Rate, loadgen.MaxRate)
	case f.options.Clients < 1 || f.options.Clients > loadgen.MaxClients:
		return usagef("--clients %d, want 1 to %d", f.options.Clients, loadgen.MaxClients)
	}
	return nil
}
