package main

import (
	_ "embed" // the page
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/sim"
)

// simulationTables prints results for people; width 0 is any.
func simulationTables(all []simulation, width int) string {
	var b strings.Builder
	for i := range all {
		s := &all[i]
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s", s.Name)
		if s.Title != "" {
			fmt.Fprintf(&b, ": %s", s.Title)
		}
		fmt.Fprintf(&b, " (seed %d)\n", s.Seed)
		columns, left := fitColumns(resultColumns(s.Results), width)
		writeColumns(&b, columns)
		if len(left) > 0 {
			fmt.Fprintf(&b, "columns that did not fit: %s\n", strings.Join(left, ", "))
		}
	}
	return b.String()
}

// resultColumn is one figure of a result.
type resultColumn struct {
	head  string
	spare int
	cell  func(r *sim.Result) string
}

// shedColumn is after which column those of the classes come.
const shedColumn = "SHED"

var resultTable = []resultColumn{
	{"POLICY", 0, func(r *sim.Result) string { return r.Policy }},
	{"MEAN MS", 0, func(r *sim.Result) string { return fmt.Sprintf("%.2f", r.MeanMS) }},
	{"P50", 5, func(r *sim.Result) string { return fmt.Sprintf("%.1f", r.P50MS) }},
	{"P99", 0, func(r *sim.Result) string { return fmt.Sprintf("%.0f", r.P99MS) }},
	{"FULLEST", 0, func(r *sim.Result) string { return percentText(r.Fullest) }},
	{"PEAK", 1, func(r *sim.Result) string { return percentText(r.Peak) }},
	{"USED", 6, func(r *sim.Result) string { return percentText(r.Utilization) }},
	{"X-ZONE", 4, func(r *sim.Result) string { return percentText(r.CrossZone) }},
	{"X-REGION", 2, func(r *sim.Result) string { return percentText(r.CrossRegion) }},
	{"$/HOUR", 7, func(r *sim.Result) string { return fmt.Sprintf("%.2f", r.DollarsHour) }},
	{shedColumn, shedSpare, func(r *sim.Result) string { return percentText(r.Shed) }},
	{"FAILED", 0, func(r *sim.Result) string { return percentText(r.Failed) }},
	{"CHURN", 8, func(r *sim.Result) string { return fmt.Sprintf("%.1f", r.Churn) }},
	{"SETTLE S", 3, func(r *sim.Result) string {
		if r.Settle < 0 {
			return "-"
		}
		return fmt.Sprintf("%.0f", r.Settle)
	}},
}

func percentText(x float64) string {
	if x == 0 {
		return "0%"
	}
	return fmt.Sprintf("%.1f%%", 100*x)
}

func resultColumns(results []*sim.Result) []column {
	table := resultTableOf(results)
	out := make([]column, len(table))
	for i, c := range table {
		out[i] = column{head: c.head, spare: c.spare}
		for _, r := range results {
			out[i].cells = append(out[i].cells, c.cell(r))
		}
	}
	return out
}

// resultTableOf is the table with what is shed of each class of clients, where
// there are any.
func resultTableOf(results []*sim.Result) []resultColumn {
	at := 1 + slices.IndexFunc(resultTable, func(c resultColumn) bool { return c.head == shedColumn })
	var of []resultColumn
	for _, class := range classesOf(results) {
		of = append(of, resultColumn{shedColumn + " " + strings.ToUpper(class.String()), shedSpare, func(r *sim.Result) string {
			return percentText(shedOf(r.Classes, class))
		}})
	}
	return slices.Insert(slices.Clone(resultTable), at, of...)
}

const shedSpare = 3

// classesOf lists the classes of which results tell, from the one that is shed
// last.
func classesOf(results []*sim.Result) []isobar.Class {
	var out []isobar.Class
	for _, r := range results {
		for _, c := range r.Classes {
			out = append(out, c.Class)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// shedOf is what is shed of a class, as a fraction of its requests.
func shedOf(classes []sim.ClassShare, class isobar.Class) float64 {
	for _, c := range classes {
		if c.Class == class {
			return c.Shed
		}
	}
	return 0
}

// chart is one drawing: a line for each policy over time.
type chart struct {
	Title         string
	Width, Height int
	XTicks        []xTick
	YTicks        []yTick
	Paths         []chartPath
}

type xTick struct {
	X, Y float64
	Text string
}

type yTick struct {
	X, X2, Y, TextX, TextY float64
	Text                   string
}

type chartPath struct {
	pageLine

	D string
}

// Sizes of a chart, in units of its own.
const (
	chartWidth  = 640
	chartHeight = 220
	chartLeft   = 46.0
	chartRight  = 632.0
	chartTop    = 8.0
	chartBottom = 196.0
	chartPoints = 400 // of a line at most; of more, the highest of neighbours is drawn
)

// scale maps values to heights.
type scale struct {
	low, high float64
	log       bool
}

func (s scale) y(v float64) float64 {
	f := (v - s.low) / (s.high - s.low)
	if s.log {
		f = math.Log(max(v, s.low)/s.low) / math.Log(s.high/s.low)
	}
	return chartBottom - (chartBottom-chartTop)*max(0, min(1, f))
}

func newChart(title string, results []*sim.Result, lines []pageLine, log bool, value func(*sim.Sample) float64) chart {
	c := chart{Title: title, Width: chartWidth, Height: chartHeight}
	s := scaleOf(results, log, value)
	end := 0.0
	for _, r := range results {
		for i := range r.Samples {
			end = max(end, r.Samples[i].Seconds)
		}
	}
	for i, r := range results {
		c.Paths = append(c.Paths, chartPath{pageLine: lines[i], D: pathOf(r.Samples, s, end, value)})
	}
	// Isobar's line lies above the others.
	for i := range c.Paths {
		if c.Paths[i].Isobar {
			c.Paths = append(append(c.Paths[:i:i], c.Paths[i+1:]...), c.Paths[i])
			break
		}
	}
	for _, v := range s.ticks() {
		y := s.y(v)
		c.YTicks = append(c.YTicks, yTick{X: chartLeft, X2: chartRight, Y: y, TextX: chartLeft - 6, TextY: y + 4, Text: strconv.FormatFloat(v, 'g', 4, 64)})
	}
	const parts = 4
	for i := range parts + 1 {
		at := end * float64(i) / parts
		c.XTicks = append(c.XTicks, xTick{
			X: chartLeft + (chartRight-chartLeft-12)*float64(i)/parts, Y: chartHeight - 6,
			Text: (time.Duration(at) * time.Second).String(),
		})
	}
	return c
}

func scaleOf(results []*sim.Result, log bool, value func(*sim.Sample) float64) scale {
	low, high := math.Inf(1), 0.0
	for _, r := range results {
		for i := range r.Samples {
			v := value(&r.Samples[i])
			high = max(high, v)
			if v > 0 {
				low = min(low, v)
			}
		}
	}
	if high <= 0 {
		return scale{low: 0, high: 1}
	}
	if log {
		return scale{low: max(low, high/1e6) * 0.9, high: high * 1.1, log: true}
	}
	return scale{low: 0, high: high * 1.05}
}

// ticks are round values within the scale.
func (s scale) ticks() []float64 {
	var out []float64
	if s.log {
		for e := math.Floor(math.Log10(s.low)); e <= math.Ceil(math.Log10(s.high)); e++ {
			for _, m := range []float64{1, 2, 5} {
				if v := m * math.Pow(10, e); v >= s.low && v <= s.high {
					out = append(out, v)
				}
			}
		}
		return out
	}
	step := math.Pow(10, math.Floor(math.Log10(s.high/2)))
	for s.high/step > 6 {
		step *= 2
	}
	for v := 0.0; v <= s.high; v += step {
		out = append(out, v)
	}
	return out
}

func pathOf(samples []sim.Sample, s scale, end float64, value func(*sim.Sample) float64) string {
	if len(samples) == 0 || end <= 0 {
		return ""
	}
	var b strings.Builder
	each := max(1, (len(samples)+chartPoints-1)/chartPoints)
	for i := 0; i < len(samples); i += each {
		most := 0.0
		for j := i; j < min(i+each, len(samples)); j++ {
			most = max(most, value(&samples[j]))
		}
		command := 'L'
		if i == 0 {
			command = 'M'
		}
		fmt.Fprintf(&b, "%c%.1f %.1f", command, chartLeft+(chartRight-chartLeft)*samples[i].Seconds/end, s.y(most))
	}
	return b.String()
}

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
