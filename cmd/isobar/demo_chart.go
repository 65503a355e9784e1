package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
)

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
	chartRows             = 6  // at most
)

// chart draws the latencies of each mode in rows of the terminal's width, one
// mode beneath the other; nothing where there is no room.
func (h *demoHistory) chart(width, height int) string {
	rows := 0
	if len(h.modes) > 0 {
		rows = min(chartRows, (height-2)/2) // an empty line, the title; room for both modes from the start
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
