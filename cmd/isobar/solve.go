package main

import (
	"fmt"

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

A locality may also have queues (default 1), ceiling (0.8) and background (0),
a source allowed: [localities], a service max_shed (0) and

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
	Utilization  []float64    `json:"utilization"`   // including background
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
