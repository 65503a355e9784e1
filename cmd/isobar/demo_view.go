package main

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
)

// modeTitle says what a mode stands for in the demo.
func modeTitle(m isobar.Mode) string {
	if m == isobar.ModeObserve {
		return "plain failover"
	}
	return "Isobar"
}

// consoleAddress is where a browser finds the console of the run.
func consoleAddress(f *fleet.Frame) string { return "http://" + f.Admin + "/ui/" }

// frameLine is a frame as one line.
func frameLine(f *fleet.Frame) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-14s %3.0fs  %-33s", modeTitle(f.Mode), f.At.Seconds(), f.Phase)
	for i := range f.Now.Zones {
		z := &f.Now.Zones[i]
		fmt.Fprintf(&b, "  %s %3.0f%%", z.Locality, 100*z.Load)
	}
	fmt.Fprintf(&b, "  mean %s  p99 %s  failed %d", shortMS(f.Now.Mean), shortMS(f.Now.P99), f.Now.Failed)
	return b.String()
}

// barWidth is the width of a load bar at 100%: in a terminal of 80 columns 20, and
// more in a wider one, of which half as much again may follow.
func barWidth(columns int) int { return max(20, 20+(columns-80)*2/3) }

// frameTable is a frame as tables, for a terminal of so many columns, at least
// 80, and 24 lines.
func frameTable(f *fleet.Frame, columns int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "isobar demo   %s (mode %s)   %s\n%2.0f of %.0f s   %s\n\n",
		modeTitle(f.Mode), f.Mode, consoleAddress(f), f.At.Seconds(), f.Length.Seconds(), f.Phase)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "zone\tclients send\tbackends get\tload of the backends")
	for i := range f.Now.Zones {
		z := &f.Now.Zones[i]
		fmt.Fprintf(w, "\n%s\t%.0f/s\t%.0f/s\t%3.0f%%  %s", z.Locality, z.Demand, z.Arrived, 100*z.Load, bar(z.Load, barWidth(columns)))
	}
	_ = w.Flush() // into memory
	b.WriteString("\n\n")
	servedIn(&b, f)
	fmt.Fprintf(&b, "\n\nlast 2 s   mean %s   p99 %s   %d failed   %.0f%% cross-region\n",
		shortMS(f.Now.Mean), shortMS(f.Now.P99), f.Now.Failed, 100*f.Now.CrossRegion)
	fmt.Fprintf(&b, "this run   mean %s   p99 %s   %d failed   %.0f%% cross-region\n",
		shortMS(f.Overall.Mean), shortMS(f.Overall.P99), f.Overall.Failed, 100*f.Overall.CrossRegion)
	return b.String()
}

// bar draws a load; what exceeds the capacity stands behind a mark, up to half
// as much again.
func bar(load float64, width int) string {
	n := int(load*float64(width) + 0.5)
	if n <= width {
		return strings.Repeat("█", max(0, n)) + strings.Repeat("·", width-max(0, n))
	}
	return strings.Repeat("█", width) + "|" + strings.Repeat("█", min(width/2, n-width))
}

// servedIn is the table of where each zone's clients are served.
func servedIn(b *strings.Builder, f *fleet.Frame) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "clients in\tare served in")
	for i := range f.Now.Zones {
		fmt.Fprintf(w, "\t%s", f.Now.Zones[i].Locality)
	}
	for i := range f.Now.Zones {
		z := &f.Now.Zones[i]
		total := 0.0
		for _, r := range z.Sent {
			total += r
		}
		fmt.Fprintf(w, "\n%s\t", z.Locality)
		for _, r := range z.Sent {
			fmt.Fprintf(w, "\t%s", share(r, total))
		}
	}
	_ = w.Flush() // into memory
}

// share is a part of a total in percent; less than half a percent is a dash.
func share(part, total float64) string {
	if total <= 0 || part/total < 0.005 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*part/total)
}

func shortMS(d time.Duration) string { return cellMS(float64(d) / float64(time.Millisecond)) }

func cellMS(ms float64) string { return bareMS(ms) + " ms" }

// bareMS is a latency in ms without its unit.
func bareMS(ms float64) string {
	if ms < 10 {
		return fmt.Sprintf("%.1f", ms)
	}
	return fmt.Sprintf("%.0f", ms)
}

// demoHistory is the latency of each mode by the second: the 99th percentile of
// each frame, in the order in which frames came.
type demoHistory struct {
	modes  []isobar.Mode
	p99    map[isobar.Mode][]time.Duration
	length time.Duration // of a run
	slot   time.Duration // between two frames
}

func (h *demoHistory) add(f *fleet.Frame) {
	if h.p99 == nil {
		h.p99 = map[isobar.Mode][]time.Duration{}
	}
	if _, known := h.p99[f.Mode]; !known {
		h.modes = append(h.modes, f.Mode)
	}
	h.p99[f.Mode] = append(h.p99[f.Mode], f.Now.P99)
	h.length = f.Length
	if n := len(h.p99[f.Mode]); f.At > 0 {
		h.slot = f.At / time.Duration(n)
	}
}

// The bounds of a chart of latencies; its scale is logarithmic.
const (
	chartLeast, chartMost = 10 * time.Millisecond, 2 * time.Second
	chartLabel            = 16 // columns
	chartRows             = 32 // at most
)

// chart draws the latencies of each mode in rows of the terminal's width, one mode beneath the
// other; nothing if the rows do not fit.
func (h *demoHistory) chart(width, height int) string {
	rows := 0
	if len(h.modes) > 0 {
		rows = min(chartRows, (height-2)/len(h.modes)) // an empty line, the title
	}
	if rows < 1 || h.slot <= 0 {
		return ""
	}
	each := max(1, int(float64(width-chartLabel)/math.Ceil(float64(h.length)/float64(h.slot))))
	var b strings.Builder
	fmt.Fprintf(&b, "\np99 latency by the second, %s to %s\n", shortMS(chartLeast), shortMS(chartMost))
	for _, m := range h.modes {
		for row := rows - 1; row >= 0; row-- {
			label := ""
			if row == rows-1 {
				label = modeTitle(m)
			}
			fmt.Fprintf(&b, "%-*s", chartLabel, label)
			for _, p99 := range h.p99[m] {
				b.WriteString(strings.Repeat(chartCell(p99, row, rows), each))
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// chartCell is the part of a column of a chart in one of its rows, 0 at the
// bottom.
func chartCell(p99 time.Duration, row, rows int) string {
	const eighths = " ▁▂▃▄▅▆▇█"
	at := math.Log(float64(max(p99, chartLeast))/float64(chartLeast)) / math.Log(float64(chartMost)/float64(chartLeast))
	n := int(math.Round(at*float64(8*rows))) - 8*row
	if row == 0 {
		n = max(n, 1) // a second in which all was fast is seen, too
	}
	return string([]rune(eighths)[max(0, min(8, n))])
}
