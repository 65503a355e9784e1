package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/grpc/grpclog"

	"github.com/isobar-xds/isobar/internal/fleet"
)

// demoFlags are the flags of `isobar demo`.
type demoFlags struct {
	keep  bool
	json  bool
	plain bool
	envoy bool

	replicas int
}

// errDemo says that the demo ran, but that Isobar did not do its work.
var errDemo = errors.New("the demo failed")

func demoCommand() *cobra.Command {
	var flags demoFlags
	var output outputFormat
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole loop on this machine: real gRPC backends and clients, a load step, a hung backend, the loss of a zone",
		Long: `Run a whole fleet with Isobar on this machine, on loopback, without any set-up.

Four zones in two regions run real gRPC backends with limited concurrency, and
real grpc-go xDS clients. The connections between them have the latency of their
distance. Health checkers in three zones probe the backends. The demo causes a
load step in one zone, which declares 1.5 times its capacity, makes a backend hang
in another zone, and kills a third zone. It does this twice, first with plain
locality failover (mode observe), then with Isobar (mode full). A table shows the
progress; the verdict compares both runs.

The exit status is 0 only if, with Isobar, the shares converged after the load
step and after the loss; the fleet served all requests that its capacity allows,
except those caught by the hang and the loss; and Isobar found, drained and reused
the hanging backend. The demo takes less than 90 seconds.

With --replicas 3, a group of three servers serves the fleet. Each server is a
separate process; all have one address. The demo kills the leader (SIGKILL)
during the load step. The verdict includes the time to the next leader's first
plan, and requires that no request failed. The demo takes less than 110 seconds.

With --envoy, each client sends its requests through its own Envoy, which balances
them. The program is "envoy" from PATH, or the given one.`,
		Example: "  isobar demo\n  isobar demo --keep     # leave it running, to look around\n  isobar demo -o json > verdict.json\n" +
			"  isobar demo --replicas 3\n" +
			"  isobar demo --envoy\n  isobar demo --envoy ./envoy-1.40.0",
		Args: func(cmd *cobra.Command, args []string) error {
			if flags.envoy {
				return cobra.MaximumNArgs(1)(cmd, args)
			}
			return cobra.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.json = flags.json || output == outputJSON
			scenario, start, err := flags.management()
			if err != nil {
				return err
			}
			if flags.envoy {
				if scenario.Proxies, err = demoProxies(args); err != nil {
					return err
				}
			}
			// A zone that dies makes grpc-go log errors, and it is meant to die.
			grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
			return runDemo(cmd.Context(), flags, scenario, start, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().BoolVar(&flags.keep, "keep", false, "leave the fleet running after the verdict, until interrupted")
	cmd.Flags().IntVar(&flags.replicas, "replicas", 1, "servers in a group, 1 to 9; with more than 1 the leader is killed during the load step")
	output.register(cmd)
	cmd.Flags().BoolVar(&flags.json, "json", false, "the same as -o json: print the verdict as JSON, and progress to standard error")
	cmd.Flags().BoolVar(&flags.plain, "plain", false, "print progress as plain lines even on a terminal")
	cmd.Flags().BoolVar(&flags.envoy, "envoy", false, "send requests through Envoys: the program envoy from PATH, or the one at the given path")
	return cmd
}

// management returns what is played, and what starts the management server.
func (f *demoFlags) management() (fleet.Scenario, fleet.StartManagement, error) {
	const most = 9
	switch {
	case f.replicas < 1 || f.replicas > most:
		return fleet.Scenario{}, nil, usagef("--replicas %d: want 1 to %d", f.replicas, most)
	case f.replicas == 1:
		return fleet.DefaultScenario(), fleet.ServeIsobar, nil
	}
	program, err := os.Executable()
	if err != nil {
		return fleet.Scenario{}, nil, fmt.Errorf("--replicas starts this program: %w", err)
	}
	return fleet.ReplicaScenario(), fleet.ServeReplicas(fleet.ReplicaOptions{Program: program, Count: f.replicas}), nil
}

// demoProxies finds the Envoy that the demo's clients send through.
func demoProxies(args []string) (*fleet.Proxies, error) {
	name := "envoy"
	if len(args) > 0 {
		name = args[0]
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, usagef("--envoy: %w; install Envoy (https://www.envoyproxy.io/docs/envoy/latest/start/install), or give its path: isobar demo --envoy PATH", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	return &fleet.Proxies{Path: path, Bootstrap: func(c *fleet.ClientOptions) (string, error) {
		client := bootstrapFlags{server: c.Server, nodeID: c.ID, cluster: c.Cluster, locality: c.Locality.String()}
		b, err := client.check()
		if err != nil {
			return "", err
		}
		file, err := new(envoyFlags).check(b, false)
		if err != nil {
			return "", err
		}
		var text strings.Builder
		err = envoyBootstrap.Execute(&text, file)
		return text.String(), err
	}}, nil
}

func runDemo(ctx context.Context, flags demoFlags, s fleet.Scenario, start fleet.StartManagement, stdout, stderr io.Writer) error {
	progress := stdout
	if flags.json {
		progress = stderr
	}
	var v fleet.Verdict
	var kept *fleet.Run
	play := func(ctx context.Context, frame func(fleet.Frame)) (err error) {
		v, kept, err = fleet.Compare(ctx, s, start, frame, flags.keep)
		return err
	}
	show := playPlain
	if !flags.plain && isTerminal(progress) {
		show = playLive
	}
	if err := show(ctx, progress, play); err != nil {
		return err
	}
	err := printVerdict(stdout, &v, flags.json)
	if kept != nil {
		if err == nil {
			err = linger(ctx, kept, progress)
		}
		err = errors.Join(err, kept.Close())
	}
	if err == nil && !v.OK {
		return errDemo
	}
	return err
}

// linger leaves a fleet running until the context ends.
func linger(ctx context.Context, r *fleet.Run, w io.Writer) error {
	_, err := fmt.Fprintf(w, "\nThe fleet continues without the lost zone. Admin API: http://%[1]s "+
		"(try /v1/plan, /v1/health, /metrics); the console: http://%[1]s/ui/\nInterrupt to end.\n", r.Admin())
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func printVerdict(w io.Writer, v *fleet.Verdict, asJSON bool) error {
	if !asJSON {
		_, err := io.WriteString(w, "\n"+verdictText(v))
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// playPlain prints one line a second; it ends early when nobody reads them.
func playPlain(ctx context.Context, w io.Writer, play func(context.Context, func(fleet.Frame)) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if _, err := io.WriteString(w, demoStarts); err != nil {
		return err
	}
	told := ""
	return play(ctx, func(f fleet.Frame) {
		if f.Admin != told {
			told = f.Admin
			if _, err := fmt.Fprintf(w, "%-14s the console: %s\n", modeTitle(f.Mode), consoleAddress(&f)); err != nil {
				cancel(err)
			}
		}
		if _, err := fmt.Fprintln(w, frameLine(&f)); err != nil {
			cancel(err)
		}
	})
}

// isTerminal reports whether a live view can be shown on w and get its keys:
// both ends are terminals, and this one says how wide it is and can move its
// cursor.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(os.Stdin.Fd())) {
		return false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	return err == nil && width > 0
}

// errInterrupted says that the user ended a live view.
var errInterrupted = errors.New("interrupted")

// demoStarts is shown until there is something to see.
const demoStarts = "isobar demo   starting backends, clients and the server ...\n"

// liveDemo is the live table. Its messages are frames and keys.
type liveDemo struct {
	frame         *fleet.Frame
	history       *demoHistory
	width, height int
	cancel        context.CancelCauseFunc
}

func newLiveDemo(cancel context.CancelCauseFunc) liveDemo {
	return liveDemo{history: &demoHistory{}, width: defaultWidth, height: defaultHeight, cancel: cancel}
}

// Init implements [tea.Model].
func (m liveDemo) Init() tea.Cmd { return nil }

// Update implements [tea.Model].
func (m liveDemo) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case fleet.Frame:
		m.frame = &msg
		m.history.add(&msg)
	case tea.KeyPressMsg:
		if k := msg.String(); k == "ctrl+c" || k == "q" {
			m.cancel(errInterrupted)
		}
	}
	return m, nil
}

// View implements [tea.Model].
func (m liveDemo) View() tea.View {
	if m.frame == nil {
		return tea.NewView(demoStarts)
	}
	table := frameTable(m.frame, m.width)
	return tea.NewView(table + m.history.chart(m.width, m.height-1-strings.Count(table, "\n")))
}

// playLive shows frames in a table that stays in place.
func playLive(ctx context.Context, w io.Writer, play func(context.Context, func(fleet.Frame)) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	program := tea.NewProgram(newLiveDemo(cancel), tea.WithOutput(w), tea.WithoutSignalHandler())
	played := make(chan error, 1)
	go func() {
		err := play(ctx, func(f fleet.Frame) { program.Send(f) })
		program.Quit()
		played <- err
	}()
	_, viewErr := program.Run()
	if viewErr != nil {
		cancel(fmt.Errorf("live view: %w", viewErr))
	}
	if err := <-played; err != nil {
		return err
	}
	return viewErr
}
