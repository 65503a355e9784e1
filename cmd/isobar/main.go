// Command isobar is the management server and its tools.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/checker"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/loadgen"
	"github.com/isobar-xds/isobar/internal/plural"
)

// The exit codes.
const (
	exitOK    = 0
	exitError = 1 // of isobar status also: something needs attention
	exitUsage = 2
	// exitUnasked is that of isobar status where the server does not answer.
	exitUnasked = 3
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, errorText(err))
	}
	os.Exit(exitCode(err))
}

func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	_, wrong := errors.AsType[usageError](err)
	if wrong || errors.Is(err, checker.ErrOptions) || errors.Is(err, loadgen.ErrOptions) {
		return exitUsage
	}
	if _, unasked := errors.AsType[unaskedError](err); unasked {
		return exitUnasked
	}
	return exitError
}

// errorText is what is printed of an error. Errors of input begin with their
// file, line and column, so that editors find the place; others with who
// speaks.
func errorText(err error) string {
	if places, ok := errors.AsType[*config.Error](err); ok {
		return places.Error()
	}
	return "isobar: " + err.Error()
}

// group is a part of the list of commands in the help.
type group struct {
	id, title string
	commands  []*cobra.Command
}

// groups returns all commands by their purpose. Each command has a file of its
// name.
func groups() []group {
	return []group{
		{"run", "Run Isobar", []*cobra.Command{serveCommand(), checkCommand(), checkerCommand(), bootstrapCommand(), kubernetesCommand()}},
		{"see", "Inspect a running server", []*cobra.Command{
			statusCommand(), topCommand(), explainCommand(), capacityCommand(), clientsCommand(), healthCommand(), historyCommand(), samplesCommand(),
		}},
		{"ask", "Preview and replay decisions", []*cobra.Command{planCommand(), whatifCommand(), recordCommand(), replayCommand()}},
		{"change", "Operate a running server", []*cobra.Command{
			pauseCommand(), resumeCommand(), rollbackCommand(), reloadCommand(), markCommand(), replicasCommand(), snapshotCommand(),
		}},
		{"try", "Try Isobar without a fleet, and measure", []*cobra.Command{
			demoCommand(), simulateCommand(), solveCommand(), predictCommand(), benchCommand(),
		}},
	}
}

// usageError marks an error in how the command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usagef makes one of a text, as fmt.Errorf does.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run is the whole program but for its exit: args without the program's name.
// It returns when the command is done or ctx has ended and everything that was
// started has stopped.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.InitDefaultCompletionCmd(args...)
	markUsage(root)
	return root.ExecuteContext(ctx)
}

// newRoot is the program with all its commands.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "isobar",
		Short: "A global load balancer for Envoy and proxyless gRPC fleets",
		Long: `Isobar is an xDS management server and a global load balancer. Clients report load,
Isobar computes one global assignment from capacity, demand, health and distance,
and sends the clients in each zone their weights.`,
		SilenceUsage:  true, // the text of the help would hide the error
		SilenceErrors: true, // main prints it, once
		// cobra looks after required flags itself, but as if a missing one were no
		// error in the call.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmd.ValidateRequiredFlags(); err != nil {
				return asUsage(cmd, err)
			}
			return nil
		},
	}
	root.Version = buildVersion()
	root.SetVersionTemplate("isobar {{.Version}}\n")
	for _, g := range groups() {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title + ":"})
		for _, c := range g.commands {
			c.GroupID = g.id
		}
		root.AddCommand(g.commands...)
	}
	root.AddCommand(versionCommand())
	knownHelp(root)
	return root
}

// flagError says of a value that can't be read what is wanted, in place of what
// strconv calls it.
func flagError(cmd *cobra.Command, err error) error {
	text := err.Error()
	if number, ok := errors.AsType[*strconv.NumError](err); ok {
		want := "want a number"
		if number.Func == "ParseBool" {
			want = "want true or false"
		}
		text = strings.Replace(text, number.Error(), want, 1)
	}
	if head, _, ok := strings.Cut(text, ": time: "); ok { // what time.ParseDuration says has no type
		text = head + ": want a duration, such as 5s or 1m30s"
	}
	return usagef("%s; see %s --help", text, cmd.CommandPath())
}

// knownHelp makes it an error to ask for help about what does not exist; cobra
// shows all commands then, as if nothing were the matter.
func knownHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		return // there is none
	}
	help.Run = nil
	help.RunE = func(_ *cobra.Command, args []string) error {
		cmd, rest, err := root.Find(args)
		if err != nil {
			return usageError{err}
		}
		if err := knownCommand(cmd, rest); err != nil {
			return err
		}
		cmd.InitDefaultHelpFlag() // so that it is listed
		return cmd.Help()
	}
}

func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// knownCommand refuses what is not a command, and says what was likely meant.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see " + cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = min(2, (len(args[0])-1)/2) // of a short word two letters are too much
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("unknown command %q; %s", args[0], hint)
}

// markUsage makes errors about the number of arguments usage errors, for all
// commands. One that is nothing without a command beneath it shows them.
func markUsage(cmd *cobra.Command) {
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args, cmd.RunE = knownCommand, showHelp
		cmd.SetFlagErrorFunc(func(at *cobra.Command, err error) error {
			if at == cmd { // with a command that does not exist its flags don't, either
				if unknown := knownCommand(cmd, cmd.Flags().Args()); unknown != nil {
					return unknown
				}
			}
			return flagError(at, err)
		})
	}
	if cmd.ValidArgsFunction == nil && cmd.Use == cmd.Name() { // it takes no arguments, so no files either
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return wrongArguments(cmd, args, err)
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		markUsage(sub)
	}
}

// wrongArguments says how a command is called where cobra only counts.
func wrongArguments(cmd *cobra.Command, args []string, err error) error {
	first, _, _ := strings.Cut(err.Error(), " ")
	if exitCode(err) == exitUsage || !slices.Contains([]string{"accepts", "requires", "unknown"}, first) {
		return asUsage(cmd, err)
	}
	return usagef("got %s; want %s; see %s --help", plural.Count(len(args), "argument", "arguments"), cmd.UseLine(), cmd.CommandPath())
}

func asUsage(cmd *cobra.Command, err error) error {
	if exitCode(err) == exitUsage {
		return err
	}
	return usagef("%w; see %s --help", err, cmd.CommandPath())
}
