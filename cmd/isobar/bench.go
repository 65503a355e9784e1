package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/loadgen"
	"github.com/isobar-xds/isobar/internal/plural"
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
	f.StringSliceVar(&flags.localities, "localities", nil, "localities of the clients: region/zone,... (default: those in which services have endpoints)")
	f.StringSliceVar(&o.Services, "services", nil, "services to subscribe to (default: all services of the server)")
	f.IntVar(&o.Subscribe, "subscribe", loadgen.DefaultSubscribe, "services of each client")
	f.StringVar((*string)(&o.Streams), "streams", string(loadgen.SharedADS),
		"discovery streams of a client: shared (one for all services), ads (one for each service, as grpc-java, gRPC C++ and Python)"+
			" or eds (one for each service, as Envoys outside ADS)")
	f.Float64Var(&o.Rate, "rate", 0, "requests/s that each client reports, over all its services; moves weights")
	f.DurationVar(&o.Ramp, "ramp", 5*time.Second, "time over which the clients connect")
	f.DurationVar(&o.Duration, "duration", 30*time.Second, "duration of the run, from the connection of the first client")
	f.BoolVar(&o.Reconnect, "reconnect", false, "at the end of the run, close all connections and let all clients reconnect at once")
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
		_, _ = fmt.Fprintf(stderr, "warning: %s %v requests/s each without sending any; the server computes weights from these reports\n",
			plural.Count(flags.options.Clients, "client reports", "clients report"), flags.options.Rate) // nobody to tell
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
		return usagef("--server %q is not on this machine: give --yes to load it with %s", f.options.Target, plural.Count(f.options.Clients, "client", "clients"))
	}
	if f.options.Credentials, err = dialCredentials("--server", f.options.Target, f.tls, f.insecure, log); err != nil {
		return err
	}
	f.options.Hint = f.tls.Hint
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
		return usagef("--addresses needs a server on this machine, and --server %q is not", f.options.Target)
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

// benchLineEvery is how often a line is printed where there is no terminal.
const benchLineEvery = 5 * time.Second

// benchProgress shows a bar on a terminal, elsewhere a line now and then.
type benchProgress struct {
	w     io.Writer
	bar   *progressBar
	phase loadgen.Phase
	next  time.Time
}

func newBenchProgress(w io.Writer) *benchProgress {
	return &benchProgress{w: w, bar: newProgressBar(w, 0)}
}

func (b *benchProgress) progress(p loadgen.Progress) {
	text := fmt.Sprintf("%s: %d of %s served, %s, %s, %s", p.Phase, p.Answered, plural.Count(p.Clients, "client", "clients"),
		plural.Count(p.Pushes, "push", "pushes"), plural.Count(p.Reports, "report", "reports"), plural.Count(p.Errors, "error", "errors"))
	if b.bar.w != nil {
		b.bar.line(text, p.Done)
		return
	}
	now := time.Now()
	if p.Phase == b.phase && now.Before(b.next) {
		return
	}
	b.phase, b.next = p.Phase, now.Add(benchLineEvery)
	_, _ = fmt.Fprintln(b.w, text) // nobody to tell
}

func (b *benchProgress) end() { b.bar.clear() }

// benchText is what is printed of a result.
func benchText(r *loadgen.Result) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("clients", "%d on %s, for %.0f s; each has %d of %s",
		r.Clients, plural.Count(r.Connections, "connection", "connections"), r.Seconds, r.Subscribed, plural.Count(r.Services, "service", "services"))
	line("streams", "%d for discovery", r.Streams)
	line("localities", "%s", shortList(r.Localities))
	line("first EDS", "%s", arrivalText(&r.FirstEDS))
	if r.Reconnect != nil {
		line("reconnect", "%s", arrivalText(r.Reconnect))
	}
	if r.NoReconnect {
		line("reconnect", "not reached: the run ended early")
	}
	line("pushes", "%d, %.1f MB", r.Pushes, float64(r.PushBytes)/1e6)
	if r.Spread.Count > 0 {
		line("spread", "%s from the first to the last client, of %s", latencyText(&r.Spread), plural.Count(r.Spread.Count, "version", "versions"))
	}
	line("NACKs", "%d", r.NACKs)
	if r.Refusal != "" {
		line("", "%s", printable(r.Refusal))
	}
	if r.ReportInterval > 0 {
		line("reports", "%d, every %g s", r.Reports, r.ReportInterval)
	} else {
		line("reports", "%d: the server never asked for any", r.Reports)
	}
	if len(r.Errors) == 0 {
		line("errors", "0")
	}
	for _, e := range r.Errors {
		line("errors", "%d %s: %s", e.Count, e.Status, orDash(e.Last))
	}
	return b.String()
}

func arrivalText(a *loadgen.Arrival) string {
	text := "no client got one"
	if a.Count > 0 {
		text = latencyText(&a.Latency)
	}
	switch {
	case a.Silent > 0:
		text += fmt.Sprintf("; %d CLIENTS GOT NONE", a.Silent)
	default:
		text += "; none silent"
	}
	if a.NotBegun > 0 {
		text += fmt.Sprintf("; %d had not connected when the run ended early", a.NotBegun)
	}
	if a.Incomplete > 0 {
		text += fmt.Sprintf("; %d LACK A SERVICE", a.Incomplete)
	}
	return text
}

func latencyText(l *loadgen.Latency) string {
	return fmt.Sprintf("p50 %.4g ms, p99 %.4g ms, max %.4g ms", l.P50MS, l.P99MS, l.MaxMS)
}

// maxListed bounds what a line lists.
const maxListed = 8

func shortList(list []string) string {
	shown := make([]string, 0, maxListed)
	for _, s := range list[:min(maxListed, len(list))] {
		shown = append(shown, orDash(s))
	}
	text := strings.Join(shown, " ")
	if more := len(list) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
