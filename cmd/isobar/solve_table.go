package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/solver"
)

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
		fmt.Fprintf(b, "\n%s: objective %.2f requests/s x ms of the total, which alone is certified\n", names.Service, s.Objective)
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
		fmt.Fprintf(b, "it does not fit: ceilings are raised by up to %s\n", percent(s.CeilingScale-1))
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
			at(s.Load, j)+site.Background, at(s.Utilization, j), price)
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
