package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/sim"
)

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
