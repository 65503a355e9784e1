package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/plural"
)

var errNothingSupposed = errors.New("no change is given: want --lose, --drain, --demand or --capacity")

func whatifCommand() *cobra.Command {
	var flags remoteFlags
	var lose, drain, demand, capacity []string
	cmd := &cobra.Command{
		Use:   "whatif",
		Short: "Show the effect of a lost or drained locality, more demand or another capacity, without publishing anything",
		Long: `Ask a running server how its plan would change if regions, zones or localities
were lost, endpoints were drained, or demand or declared capacity changed. You can
combine these. The output has utilization, drops, mean latency and shares now,
after the first tick, and after convergence. The server publishes nothing. Clients
in lost localities stay, and use other localities. Paused and held services stay
paused and held.`,
		Example: `  isobar whatif --lose us-east/b
  isobar whatif --drain checkout@us-east/b --drain cart@10.0.0.1:8080
  isobar whatif --drain @us-east/b
  isobar whatif --demand +20%
  isobar whatif --capacity checkout@us-east/b=-50%
  isobar whatif --lose eu --demand checkout=+20% --demand checkout@us=-5%`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			what, err := parseWhatIf(lose, drain, demand, capacity)
			if err != nil {
				return asUsage(cmd, err)
			}
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			out, err := remote.WhatIf(cmd.Context(), what)
			if err != nil {
				return err
			}
			if flags.output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), out)
			}
			return writeWhatIf(cmd.OutOrStdout(), &out)
		},
	}
	flags.register(cmd)
	cmd.Flags().StringArrayVar(&lose, "lose", nil, "region, zone or locality whose endpoints are gone; repeatable")
	cmd.Flags().StringArrayVar(&drain, "drain", nil, "SERVICE@LOCALITY, SERVICE@ADDRESS, or @LOCALITY for all services, to take out of traffic; repeatable")
	cmd.Flags().StringArrayVar(&demand, "demand", nil, "change of demand, as +20%, SERVICE=+20%, @SOURCE=+20% or SERVICE@SOURCE=+20%; repeatable")
	cmd.Flags().StringArrayVar(&capacity, "capacity", nil, "change of declared capacity, as SERVICE=+20% or SERVICE@LOCALITY=-50%; repeatable")
	return cmd
}

func parseWhatIf(lose, drain, demand, capacity []string) (*plan.WhatIf, error) {
	var w plan.WhatIf
	for _, text := range lose {
		l, err := isobar.ParseLocality(text)
		if err != nil {
			return nil, fmt.Errorf("--lose: %w", err)
		}
		w.Lose = append(w.Lose, l)
	}
	for _, text := range drain {
		d, err := parseDrain(text)
		if err != nil {
			return nil, err
		}
		w.Drain = append(w.Drain, d)
	}
	for _, text := range demand {
		g, err := parseGrowth(text)
		if err != nil {
			return nil, err
		}
		w.Demand = append(w.Demand, g)
	}
	for _, text := range capacity {
		c, err := parseScaling(text)
		if err != nil {
			return nil, err
		}
		w.Capacity = append(w.Capacity, c)
	}
	if len(lose)+len(drain)+len(demand)+len(capacity) == 0 {
		return nil, errNothingSupposed
	}
	return &w, nil
}

func parseDrain(text string) (d plan.Drain, err error) {
	i := strings.LastIndexByte(text, '@')
	if i < 0 || i == len(text)-1 {
		return d, fmt.Errorf("--drain %q: want SERVICE@LOCALITY, SERVICE@ADDRESS, or @LOCALITY for all services", text)
	}
	d.Service = text[:i]
	if where := text[i+1:]; d.Service != "" && strings.ContainsRune(where, ':') {
		d.Address = where
	} else if d.Locality, err = isobar.ParseLocality(where); err != nil {
		return d, fmt.Errorf("--drain %q: %w", text, err)
	}
	return d, nil
}

func parseGrowth(text string) (g plan.Growth, err error) {
	change := text
	if i := strings.LastIndexByte(text, '='); i >= 0 {
		change, g.Service = text[i+1:], text[:i]
		if at := strings.LastIndexByte(g.Service, '@'); at >= 0 {
			if g.Source, err = isobar.ParseLocality(g.Service[at+1:]); err != nil {
				return g, fmt.Errorf("--demand %q: %w", text, err)
			}
			g.Service = g.Service[:at]
		}
	}
	number, isPercent := strings.CutSuffix(change, "%")
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || !isPercent || !strings.ContainsAny(change[:1], "+-") || !(x >= -100 && x <= 100*(plan.MaxGrowth-1)) {
		return g, fmt.Errorf("--demand %q: want a change as +20%% or -5%%, after SERVICE= for one service", text)
	}
	g.Factor = 1 + x/100
	return g, nil
}

func parseScaling(text string) (c plan.Scaling, err error) {
	g, err := parseGrowth(text)
	if err != nil || g.Service == "" || g.Factor <= 0 {
		return c, fmt.Errorf("--capacity %q: want SERVICE=+20%% or SERVICE@LOCALITY=-50%%, above -100%%", text)
	}
	return plan.Scaling{Service: g.Service, Locality: g.Source, Factor: g.Factor}, nil
}

// writeWhatIf prints a line for the whole, then each service that it concerns.
func writeWhatIf(w io.Writer, d *plan.Difference) error {
	var b strings.Builder
	for i := range d.Services {
		writeServiceDifference(&b, &d.Services[i])
	}
	breaches := d.Breaches()
	for _, text := range breaches {
		fmt.Fprintf(&b, "problem: %s\n", printable(text))
	}
	for _, text := range d.Refusals {
		if !slices.Contains(breaches, text) {
			fmt.Fprintf(&b, "refused without --force: %s\n", printable(text))
		}
	}
	if d.Unchecked != "" {
		fmt.Fprintf(&b, "%s\n", printable(d.Unchecked))
	}
	if len(d.Services) == 0 {
		fmt.Fprintf(&b, "nothing would change: %s as in plan %s\n", plural.Count(d.Same, "service stays", "services stay"), printable(d.Version))
	} else {
		settled := "settled after " + plural.Count(d.Ticks, "tick", "ticks")
		if !d.Settled {
			settled = "still moving after " + plural.Count(d.Ticks, "tick", "ticks")
		}
		fmt.Fprintf(&b, "%s would change, %d would not; compared with plan %s, %s\n",
			plural.Count(len(d.Services), "service", "services"), d.Same, printable(d.Version), settled)
		fmt.Fprintf(&b, "mean latency %s -> %s, dropped %.1f -> %.1f requests/s, %s of the requests move to another locality\n",
			millis(d.Latency.Before), millis(d.Latency.Settled), d.Shed.Before, d.Shed.Settled, percent(d.Moved))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// millis shows a latency; a dash where nothing was solved.
func millis(ms float64) string {
	if ms <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f ms", ms)
}
