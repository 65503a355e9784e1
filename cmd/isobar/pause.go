package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/admin"
)

// operatorFlags are the flags of the commands by which an operator changes the
// plan.
type operatorFlags struct {
	remoteFlags

	reason string
	who    string
}

func (f *operatorFlags) register(cmd *cobra.Command) {
	f.remoteFlags.register(cmd)
	cmd.Flags().StringVarP(&f.reason, "reason", "m", "", "reason, for the history and for other operators")
	cmd.Flags().StringVar(&f.who, "who", whoami(), "name of the operator")
}

func (f *operatorFlags) request(args []string) admin.OperatorRequest {
	o := admin.OperatorRequest{Who: f.who, Reason: f.reason}
	if len(args) > 0 {
		o.Service = args[0]
	}
	return o
}

// whoami names the user and the machine, as far as they have names.
func whoami() string {
	name := "somebody"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil && host != "" {
		name += "@" + host
	}
	return name
}

func pauseCommand() *cobra.Command {
	return operatorCommand("pause [SERVICE]", "Freeze the weights of a service or of all services; health still counts",
		`Freeze the weights of a service, or of all services, until you resume them.
Shares and drops do not change, even if demand does. Traffic still leaves failing
endpoints and localities, and endpoints are still added and removed. A pause survives
restarts of the server; "isobar status" shows it. The admin interface must be
writable.`,
		"  isobar pause checkout -m 'canary of v42'\n  isobar pause",
		(*admin.Remote).Pause,
		func(w io.Writer, o *admin.OperatorRequest, out *admin.Operated) error {
			return writeOperated(w, orAll(o.Service)+" paused", out)
		})
}

func resumeCommand() *cobra.Command {
	return operatorCommand("resume [SERVICE]", "End the pause of a service, or all pauses",
		`End the pause of a service or, without SERVICE, all pauses. Weights continue from
their present values, at the usual pace. The command lists the pauses that it
ended; it is no error if no service was paused. The admin interface must be
writable.`,
		"  isobar resume checkout\n  isobar resume",
		(*admin.Remote).Resume, writeResumed)
}

// sender is a method of a Remote that sends a request.
type sender = func(*admin.Remote, context.Context, admin.OperatorRequest) (admin.Operated, error)

// writer tells the answer to a request.
type writer = func(w io.Writer, o *admin.OperatorRequest, out *admin.Operated) error

func operatorCommand(use, short, long, example string, send sender, write writer) *cobra.Command {
	var flags operatorFlags
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := flags.request(args)
			return flags.send(cmd, o, send, write)
		},
	}
	flags.register(cmd)
	cmd.ValidArgsFunction = flags.completeServices(0)
	return cmd
}

// send sends a request and prints the answer.
func (f *operatorFlags) send(cmd *cobra.Command, o admin.OperatorRequest, send sender, write writer) error {
	remote, err := f.remote()
	if err != nil {
		return err
	}
	out, err := send(remote, cmd.Context(), o)
	if err != nil {
		return err
	}
	if f.output == outputJSON {
		return writeJSON(cmd.OutOrStdout(), out)
	}
	return write(cmd.OutOrStdout(), &o, &out)
}

// writeResumed prints which pauses a resume took back.
func writeResumed(w io.Writer, o *admin.OperatorRequest, out *admin.Operated) error {
	if len(out.Resumed) == 0 {
		_, err := fmt.Fprintf(w, "no service was paused; plan %s is unchanged\n", printable(out.Version))
		return err
	}
	done := orAll(o.Service) + " resumed"
	if _, held := out.Paused.For(""); held {
		done = "all services remain paused; the pause of " + orAll(o.Service) + " alone ended"
	}
	if err := writeOperated(w, done, out); err != nil {
		return err
	}
	for _, p := range out.Resumed {
		if _, err := fmt.Fprintf(w, "%s: was %s\n", orAll(p.Service), printable(p.String())); err != nil {
			return err
		}
	}
	return nil
}

func writeOperated(w io.Writer, done string, out *admin.Operated) error {
	if _, err := fmt.Fprintf(w, "%s since plan %s\n", printable(done), printable(out.Version)); err != nil {
		return err
	}
	if err := writeRolledBack(w, out.Changed); err != nil {
		return err
	}
	for _, p := range out.Paused {
		if _, err := fmt.Fprintf(w, "%s: %s\n", orAll(p.Service), printable(p.String())); err != nil {
			return err
		}
	}
	for _, text := range out.Warnings {
		if _, err := fmt.Fprintf(w, "warning: %s\n", printable(text)); err != nil {
			return err
		}
	}
	return nil
}

// writeRolledBack tells what a rollback did.
func writeRolledBack(w io.Writer, changed []admin.RolledBack) error {
	var b strings.Builder
	for i := range changed {
		s := &changed[i]
		fmt.Fprintf(&b, "%s: %.1f%% of its traffic moved; fullest locality %.1f%% -> %.1f%%\n",
			printable(s.Service), 100*s.Moved(), 100*s.Fullest[0], 100*s.Fullest[1])
		for k := range s.Sources {
			fmt.Fprintf(&b, "  from %s  %s\n", printable(s.Sources[k].Source.String()), moves(&s.ServiceChange, &s.Sources[k]))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func orAll(service string) string {
	if service == "" {
		return "all services"
	}
	return printable(service)
}
