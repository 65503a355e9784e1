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
lower bound that no assignment can be below.

    services:
      - name: checkout
        sources:    [{locality: us-east/b, demand: 1200}]       # requests/s
        localities: [{locality: us-east/b, capacity: 1000, servers: 10},
                     {locality: eu-west/a, capacity: 1000}]
    network:
      latency_ms: [{from: us-east/b, to: eu-west/a, ms: 80}]    # every pair that is needed
      egress:     [{from: us-east/b, to: eu-west/a, price: 0.02}]

A locality may also have queues (default 1), ceiling (0.8) and background (0),
a source allowed: [localities], a service max_shed (0).`,
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
// sources.
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

//nolint:embeddedstructfieldcheck // the name comes first in the JSON, too
type solvedService struct {
	Name string `json:"name"`
	quality

	CeilingScale float64      `json:"ceiling_scale"` // factor of equal overflow; 1 when everything fits
	Flows        []solvedFlow `json:"flows"`         // those above 0
	Utilization  []float64    `json:"utilization"`   // including background
	Prices       []float64    `json:"prices"`        // ms
	Shed         []float64    `json:"shed"`          // requests/s
	Unreachable  []float64    `json:"unreachable"`   // requests/s
}

type solvedFlow struct {
	From string  `json:"from"`
	To   string  `json:"to"`
	Rate float64 `json:"rate"` // requests/s
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
			quality:      quality{one.Objective, one.LowerBound, one.Gap, one.ExcessMS},
			CeilingScale: one.CeilingScale,
			Flows:        solvedFlows(&file.Names[i], one),
			Utilization:  notNil(one.Utilization),
			Prices:       notNil(one.Prices),
			Shed:         notNil(one.Shed),
			Unreachable:  notNil(one.Unreachable),
		}
	}
	return out
}

func solvedFlows(names *config.SolveNames, s *solver.ServiceSolution) []solvedFlow {
	out := []solvedFlow{}
	for i, row := range s.Flows {
		for j, rate := range row {
			if rate > 0 {
				out = append(out, solvedFlow{From: names.Sources[i].String(), To: names.Localities[j].String(), Rate: rate})
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
