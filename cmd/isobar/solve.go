package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/solver"
)

func solveCommand() *cobra.Command {
	var output outputFormat
	cmd := &cobra.Command{
		Use:   "solve PROBLEM",
		Short: "Solve one load-balancing problem: flows, objective and lower bound",
		Long: `Solve a problem file (YAML or JSON; - for standard input) and print where the
demand of each source should go, with the objective in requests/s x ms and a
lower bound on the objective of any assignment.

    services:
      - name: checkout
        sources:    [{locality: us-east/b, demand: 1200}]       # requests/s
        localities: [{locality: us-east/b, capacity: 1000, servers: 10},
                     {locality: eu-west/a, capacity: 1000}]
    network:
      latency_ms: [{from: us-east/b, to: eu-west/a, ms: 80}]    # every pair that is needed
      egress:     [{from: us-east/b, to: eu-west/a, price: 0.02}]

A locality may also have queues (default 1), ceiling (0.8) and background (0).
A source may have allowed: [localities]. A service may have max_shed (0) and

        calls:      [{service: payment, per_request: 0.8}]

The localities of such a service are sources of the called service, which then
needs no sources of its own. The command solves all services that calls connect
together, and moves load where the cost of all of them is lowest. Only the totals
then have a lower bound.`,
		Example: "  isobar solve problem.yaml\n  isobar solve problem.yaml -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readInput(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			file, warnings, err := config.DecodeProblem(inputName(args[0]), data)
			printWarnings(cmd.ErrOrStderr(), warnings)
			if err != nil {
				return err
			}
			solution, err := solver.Solve(file.Problem)
			if err != nil {
				return fmt.Errorf("%s: %w", inputName(args[0]), err)
			}
			if output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), solveResult(file, &solution))
			}
			return writeSolution(cmd.OutOrStdout(), file, &solution)
		},
	}
	output.register(cmd)
	return cmd
}

// solvedProblem is the JSON form of a solution. Arrays follow the order of the
// problem file: utilization and prices its localities, shed and unreachable its
// sources, then the localities of each service that calls it.
type solvedProblem struct {
	quality

	Services []solvedService `json:"services"`
}

// quality is how good a solution is, proven.
type quality struct {
	Objective  float64 `json:"objective"` // requests/s x ms
	LowerBound float64 `json:"lower_bound"`
	Gap        float64 `json:"gap"`       // fraction of the objective
	ExcessMS   float64 `json:"excess_ms"` // of each request, on average
}

// partQuality is that of one service: with calls only totals are certified.
type partQuality struct {
	Objective  float64  `json:"objective"`
	LowerBound *float64 `json:"lower_bound,omitempty"`
	Gap        *float64 `json:"gap,omitempty"`
	ExcessMS   *float64 `json:"excess_ms,omitempty"`
}

//nolint:embeddedstructfieldcheck // the name comes first in the JSON, too
type solvedService struct {
	Name string `json:"name"`
	partQuality

	CeilingScale float64      `json:"ceiling_scale"` // factor of equal overflow; 1 when everything fits
	Flows        []solvedFlow `json:"flows"`         // those above 0
	Utilization  []float64    `json:"utilization"`   // including unmanaged load
	Prices       []float64    `json:"prices"`        // ms
	Shed         []float64    `json:"shed"`          // requests/s
	Unreachable  []float64    `json:"unreachable"`   // requests/s
	Calls        []solvedCall `json:"calls,omitempty"`
}

// solvedCall is a call to another service and the fraction of it that is served.
type solvedCall struct {
	Service    string  `json:"service"`
	PerRequest float64 `json:"per_request"`
	Served     float64 `json:"served"`
}

type solvedFlow struct {
	From   string  `json:"from"`
	Caller string  `json:"caller,omitempty"` // the service that calls; none for a source of the service's own
	To     string  `json:"to"`
	Rate   float64 `json:"rate"` // requests/s
}

func solveResult(file *config.SolveFile, s *solver.Solution) solvedProblem {
	out := solvedProblem{
		quality:  quality{s.Objective, s.LowerBound, s.Gap, s.ExcessMS},
		Services: make([]solvedService, len(s.Services)),
	}
	for i := range s.Services {
		one := &s.Services[i]
		out.Services[i] = solvedService{
			Name:         file.Names[i].Service,
			partQuality:  partQuality{Objective: one.Objective},
			CeilingScale: one.CeilingScale,
			Flows:        solvedFlows(&file.Names[i], one),
			Utilization:  notNil(one.Utilization),
			Prices:       notNil(one.Prices),
			Shed:         notNil(one.Shed),
			Unreachable:  notNil(one.Unreachable),
			Calls:        solvedCalls(file, i, one),
		}
		if !one.Joint {
			part := &out.Services[i].partQuality
			part.LowerBound, part.Gap, part.ExcessMS = &one.LowerBound, &one.Gap, &one.ExcessMS
		}
	}
	return out
}

func solvedCalls(file *config.SolveFile, service int, s *solver.ServiceSolution) []solvedCall {
	var out []solvedCall
	for k, c := range file.Problem.Services[service].Calls {
		out = append(out, solvedCall{Service: file.Names[c.Service].Service, PerRequest: c.PerRequest, Served: s.CallsServed[k]})
	}
	return out
}

func solvedFlows(names *config.SolveNames, s *solver.ServiceSolution) []solvedFlow {
	out := []solvedFlow{}
	for i, row := range s.Flows {
		for j, rate := range row {
			if rate > 0 {
				out = append(out, solvedFlow{
					From: names.Sources[i].String(), Caller: names.Callers[i], To: names.Localities[j].String(), Rate: rate,
				})
			}
		}
	}
	return out
}

// notNil keeps an empty list from becoming null.
func notNil(x []float64) []float64 {
	if x == nil {
		return []float64{}
	}
	return x
}

// writeSolution prints a solution for people.
func writeSolution(w io.Writer, file *config.SolveFile, s *solver.Solution) error {
	var b strings.Builder
	fmt.Fprintln(&b, "total: "+solutionQuality(s.Objective, s.LowerBound, s.Gap, s.ExcessMS))
	for i := range s.Services {
		writeSolvedService(&b, file, i, &s.Services[i])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func solutionQuality(objective, bound, gap, excess float64) string {
	return fmt.Sprintf("objective %.2f requests/s x ms, lower bound %.2f, gap %.4f%%, excess %.4f ms", objective, bound, 100*gap, excess)
}

func writeSolvedService(b *strings.Builder, file *config.SolveFile, i int, s *solver.ServiceSolution) {
	names, p := &file.Names[i], &file.Problem.Services[i]
	if s.Joint {
		fmt.Fprintf(b, "\n%s: objective %.2f requests/s x ms of the total; the lower bound holds only for the total\n", names.Service, s.Objective)
	} else {
		fmt.Fprintf(b, "\n%s: %s\n", names.Service, solutionQuality(s.Objective, s.LowerBound, s.Gap, s.ExcessMS))
	}
	for k, c := range p.Calls {
		fmt.Fprintf(b, "calls %s %g times per request", file.Names[c.Service].Service, c.PerRequest)
		if s.CallsServed[k] < 1 {
			fmt.Fprintf(b, ", %.1f%% of which is served", 100*s.CallsServed[k])
		}
		fmt.Fprintln(b)
	}
	if served := sum(s.Load); served > 0 {
		fmt.Fprintf(b, "mean cost of a request %.3f ms (network, price, service and queueing) over %.2f requests/s served\n", s.Objective/served, served)
	}
	if s.CeilingScale > 1 {
		fmt.Fprintf(b, "demand does not fit: the solver raises the ceilings by up to %s\n", percent(s.CeilingScale-1))
	}
	for i := range names.Sources {
		writeLost(b, "shed", names.From(i), at(s.Shed, i))
		writeLost(b, "unreachable", names.From(i), at(s.Unreachable, i))
	}
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nLOCALITY\tCAPACITY\tCEILING\tLOAD\tUTILIZATION\tPRICE MS")
	for j, l := range names.Localities {
		site := &p.Localities[j]
		price := "-" // nothing can be bought where nothing can be served
		if site.Capacity > 0 {
			price = fmt.Sprintf("%.4f", at(s.Prices, j))
		}
		fmt.Fprintf(table, "%s\t%.2f\t%.2f\t%.2f\t%.4f\t%s\n", l, site.Capacity, site.Ceiling,
			at(s.Load, j)+site.Unmanaged, at(s.Utilization, j), price)
	}
	fmt.Fprintln(table, "\nFROM\tTO\tRATE\tSHARE\tLATENCY MS")
	for i, row := range s.Flows {
		demand := sum(row) + at(s.Shed, i) + at(s.Unreachable, i)
		for j, rate := range row {
			if rate > leastShown || rate > leastShare*demand {
				fmt.Fprintf(table, "%s\t%s\t%.2f\t%.1f%%\t%.2f\n", names.From(i), names.Localities[j], rate, 100*rate/demand, p.Latency[i][j])
			}
		}
	}
	_ = table.Flush() // a strings.Builder takes everything
}

// Flows below both are not shown: they would print as 0.00 and 0.0%.
const (
	leastShown = 0.005  // requests/s
	leastShare = 0.0005 // of a source's demand
)

func writeLost(b *strings.Builder, what, from string, rate float64) {
	if rate > 0 {
		fmt.Fprintf(b, "%s: %.2f requests/s from %s\n", what, rate, from)
	}
}

func at(x []float64, i int) float64 {
	if i < len(x) {
		return x[i]
	}
	return 0
}

func sum(x []float64) float64 {
	total := 0.0
	for _, v := range x {
		total += v
	}
	return total
}
