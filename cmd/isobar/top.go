package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/admin"
)

// leastTopInterval keeps a view from being a load.
const leastTopInterval = 500 * time.Millisecond

var errTopInterval = errors.New("want at least " + leastTopInterval.String())

// topFlags are the flags of isobar top.
type topFlags struct {
	remoteFlags

	interval time.Duration
	count    int // 0 = until interrupted
	rows     int // 0 = all, or what fits
	sort     topSort
	sorted   bool // sort was asked for
	plain    bool
}

func topCommand() *cobra.Command {
	var flags topFlags
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch services, the fullest first, and what needs attention",
		Long: `Watch a running server: the plan in force, ticks, clients in sync, what needs
attention, and a line for each service. On a terminal the view stays in place: u,
d, s, x and n sort by utilization, demand, shift, drops and name, arrows and page
keys choose a service, Enter shows its localities and the sources of its load, ?
lists the keys, q quits. Without a terminal, or with --plain or -n, the command
prints a block at each interval. -o json sorts services by name, unless --sort is
given.

USED is the planned utilization of the fullest locality. SHIFT is the fraction of
the demand that does not go to the nearest locality. MOVING is the fraction
whose shares still differ from the target.`,
		Example: "  isobar top\n  isobar top -n 1 --sort demand --rows 10\n  isobar top -n 1 -o json | jq '.services[] | select(.drop > 0)'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags.sorted = cmd.Flags().Changed("sort")
			switch {
			case flags.interval < leastTopInterval:
				return usagef("--interval %s: %w", flags.interval, errTopInterval)
			case flags.count < 0, flags.rows < 0:
				return usageError{errors.New("--count and --rows can't be negative")}
			}
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			return runTop(cmd.Context(), &flags, remote, cmd.OutOrStdout())
		},
	}
	flags.register(cmd)
	flags.sort.register(cmd)
	f := cmd.Flags()
	f.DurationVar(&flags.interval, "interval", 2*time.Second, "how often to ask the server")
	f.IntVarP(&flags.count, "count", "n", 0, "stop after this many blocks; 0 = never")
	f.IntVar(&flags.rows, "rows", 0, "show at most this many services; 0 = all, or as many as fit")
	f.BoolVar(&flags.plain, "plain", false, "print blocks of plain lines even on a terminal, as -n does")
	return cmd
}

// askTop gets what is shown.
type askTop func(context.Context) (admin.Overview, error)

func runTop(ctx context.Context, flags *topFlags, remote *admin.Remote, w io.Writer) error {
	if flags.live(isTerminal(w)) {
		return watchLive(ctx, flags, remote, w)
	}
	return watchPlain(ctx, flags, remote.Overview, w)
}

// live tells whether the view stays in place. The live view leaves nothing
// behind when it ends, so answers that are counted are printed: who asks for one
// wants to read it.
func (f *topFlags) live(terminal bool) bool {
	return terminal && f.output == outputText && !f.plain && f.count == 0
}

// asked gives the services in the order and to the number that were asked for;
// unless one was, in that of their names, which is the same in each answer.
func (f *topFlags) asked(o admin.Overview) admin.Overview {
	if f.sorted {
		f.sort.order(o.Services)
	}
	if f.rows > 0 && len(o.Services) > f.rows {
		o.Services = o.Services[:f.rows]
	}
	return o
}

// watchPlain prints a block at each interval. A server that does not answer the
// first time is an error; later it may come back.
func watchPlain(ctx context.Context, flags *topFlags, ask askTop, w io.Writer) error {
	ticker := time.NewTicker(flags.interval)
	defer ticker.Stop()
	for shown := 0; ; {
		o, err := ask(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (shown == 0 || shown+1 == flags.count):
			return err
		case err != nil:
			_, err = fmt.Fprintf(w, "no answer: %s\n\n", printable(err.Error()))
		case flags.output == outputJSON:
			err = json.NewEncoder(w).Encode(flags.asked(o))
		default:
			flags.sort.order(o.Services)
			_, err = io.WriteString(w, topBlock(&o, time.Now(), flags.rows, widthOf(w))+"\n")
		}
		if err != nil {
			return err
		}
		if shown++; shown == flags.count {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
