package main

import (
	_ "embed" // the page
	"html/template"
	"io"
	"strconv"

	"github.com/isobar-xds/isobar/internal/sim"
)

//go:embed simulate.html
var simulationPage string

var simulationTemplate = template.Must(template.New("simulate").Parse(simulationPage))

// pageSection is one scenario of the page.
type pageSection struct {
	Name, Title string
	Seed        uint64
	Heads       []string
	Rows        []pageRow
	Lines       []pageLine
	Charts      []chart
}

type pageRow struct {
	Isobar bool
	Cells  []string
}

// pageLine is how a policy is drawn.
type pageLine struct {
	Name, Title string
	Class       string
	Color       string
	Isobar      bool
	Shown       bool // at first
}

// lineColors can be told apart in both colour schemes, also by most who see
// colours differently.
var lineColors = []string{
	"#d1495b", "#6c757d", "#3a86c8", "#8e6bbf", "#2a9d5c", "#e08e1b", "#b5651d", "#17a2b8", "#c2589b", "#7a8b2f", "#4b5fd6",
}

// writeSimulationPage writes a page that needs nothing but itself.
func writeSimulationPage(w io.Writer, all []simulation) error {
	sections := make([]pageSection, len(all))
	for i := range all {
		sections[i] = newSection(&all[i])
	}
	return simulationTemplate.Execute(w, sections)
}

func newSection(s *simulation) pageSection {
	out := pageSection{Name: s.Name, Title: s.Title, Seed: s.Seed}
	table := resultTableOf(s.Results)
	for _, c := range table {
		out.Heads = append(out.Heads, c.head)
	}
	for i, r := range s.Results {
		row := pageRow{Isobar: r.Policy == sim.NameIsobar}
		for _, c := range table {
			row.Cells = append(row.Cells, c.cell(r))
		}
		out.Rows = append(out.Rows, row)
		out.Lines = append(out.Lines, pageLine{
			Name: r.Policy, Title: r.Title, Class: "p" + strconv.Itoa(i), Color: lineColors[i%len(lineColors)],
			Isobar: row.Isobar, Shown: r.Policy != sim.NameClosest,
		})
	}
	out.Charts = []chart{
		newChart("mean latency, ms", s.Results, out.Lines, true, func(x *sim.Sample) float64 { return x.MeanMS }),
		newChart("p99 latency of single hops, ms", s.Results, out.Lines, true, func(x *sim.Sample) float64 { return x.P99MS }),
		newChart("utilization of the fullest locality, %", s.Results, out.Lines, false, func(x *sim.Sample) float64 { return 100 * x.Fullest }),
		newChart("requests that leave their region, %", s.Results, out.Lines, false, func(x *sim.Sample) float64 { return 100 * x.CrossRegion }),
		newChart("requests that fail or are shed, %", s.Results, out.Lines, false, func(x *sim.Sample) float64 { return 100 * (x.Failed + x.Shed) }),
		newChart("demand, requests/s", s.Results[:1], out.Lines, false, func(x *sim.Sample) float64 { return x.Demand }),
	}
	for _, class := range classesOf(s.Results) {
		out.Charts = append(out.Charts, newChart("requests of class "+class.String()+" that are shed, %", s.Results, out.Lines, false,
			func(x *sim.Sample) float64 { return 100 * shedOf(x.Classes, class) }))
	}
	return out
}
