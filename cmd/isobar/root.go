package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// commands lists the commands in the order of the help; each stands in the
// file of its name.
func commands() []*cobra.Command {
	return []*cobra.Command{
		serveCommand(),
		demoCommand(),
		checkCommand(),
		solveCommand(),
		simulateCommand(),
		explainCommand(),
		predictCommand(),
		healthCommand(),
		statusCommand(),
		topCommand(),
		clientsCommand(),
		historyCommand(),
		planCommand(),
		whatifCommand(),
		pauseCommand(),
		resumeCommand(),
		rollbackCommand(),
		recordCommand(),
		replayCommand(),
		benchCommand(),
		checkerCommand(),
		bootstrapCommand(),
		versionCommand(),
	}
}

// usageError marks an error in how the command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// run is the whole program but for its exit: args without the program's name.
// It returns when the command is done or ctx has ended and everything that was
// started has stopped.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := &cobra.Command{
		Use:   "isobar",
		Short: "A global load balancer for Envoy and proxyless gRPC fleets",
		Long: `Isobar is an xDS management server that closes the loop: clients report load,
Isobar computes one global assignment from capacity, demand, health and
distance, and serves each zone its share.`,
		SilenceUsage:  true, // an error shall not drown in the help
		SilenceErrors: true, // main prints it, once
		Args:          knownCommand,

		SuggestionsMinimumDistance: 2,

		RunE: showHelp,
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
	root.AddCommand(commands()...)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(args...)
	markUsage(root)
	return root.ExecuteContext(ctx)
}

func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// knownCommand refuses what is not a command, and says what was likely meant.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see " + cmd.CommandPath() + " --help"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usageError{fmt.Errorf("unknown command %q; %s", args[0], hint)}
}

// markUsage makes errors about the number of arguments usage errors, for all
// commands. One that is nothing without a command beneath it shows them.
func markUsage(cmd *cobra.Command) {
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args, cmd.RunE, cmd.SuggestionsMinimumDistance = knownCommand, showHelp, 2
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return asUsage(cmd, err)
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		markUsage(sub)
	}
}

func asUsage(cmd *cobra.Command, err error) error {
	if exitCode(err) == exitUsage {
		return err
	}
	return usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
}
