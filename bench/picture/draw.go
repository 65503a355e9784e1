package main

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// frame is what the demo prints in a second.
type frame struct {
	at     float64 // s since the run began
	phase  string
	p99    float64 // ms
	failed float64 // requests in the last 2 s
}

// demoRun is one of the two runs of the demo.
type demoRun struct {
	title  string
	frames []frame
}

var line = regexp.MustCompile(`(?m)^(plain failover|Isobar) +(\d+)s  (.+?)  .* p99 ([\d.]+) ms  failed (\d+)$`)

// read returns the runs of a demo from what it printed.
func read(printed string) ([]demoRun, error) {
	var runs []demoRun
	for _, m := range line.FindAllStringSubmatch(printed, -1) {
		var n [3]float64
		for i, text := range []string{m[2], m[4], m[5]} {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, fmt.Errorf("line %q: %w", m[0], err)
			}
			n[i] = v
		}
		if len(runs) == 0 || runs[len(runs)-1].title != m[1] {
			runs = append(runs, demoRun{title: m[1]})
		}
		r := &runs[len(runs)-1]
		r.frames = append(r.frames, frame{at: n[0], phase: m[3], p99: n[1], failed: n[2]})
	}
	if len(runs) != 2 {
		return nil, errors.New("the output does not have one run with plain failover and one with Isobar")
	}
	return runs, nil
}

// The size of the picture, in pixels.
const (
	width, height = 860, 400
	left, right   = 76, 844
	border        = 40 // above the first panel
)

var colours = [...]string{"#c2410c", "#1d4ed8"} // plain failover, Isobar

// panel is one of the charts, above each other.
type panel struct {
	title       string
	top, bottom float64
	least, most float64
	marks       []float64
	logarithmic bool
	value       func(*frame) float64
}

func (p *panel) y(v float64) float64 {
	v = min(max(v, p.least), p.most)
	part := (v - p.least) / (p.most - p.least)
	if p.logarithmic {
		part = math.Log(v/p.least) / math.Log(p.most/p.least)
	}
	return p.bottom - part*(p.bottom-p.top)
}

// draw returns the picture as SVG.
func draw(runs []demoRun) string {
	end, mostFailed := 1.0, 10.0
	for _, r := range runs {
		for i := range r.frames {
			end, mostFailed = max(end, r.frames[i].at), max(mostFailed, r.frames[i].failed)
		}
	}
	x := func(at float64) float64 { return left + at/end*(right-left) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	drawPhases(&b, runs[1].frames, x)
	panels := []panel{
		{title: "p99 latency, ms", top: border + 52, bottom: 224, least: 10, most: 2000, marks: []float64{10, 100, 1000}, logarithmic: true,
			value: func(f *frame) float64 { return f.p99 }},
		{title: "failed requests in the last 2 s", top: 258, bottom: 384, most: mostFailed, marks: []float64{0, mostFailed},
			value: func(f *frame) float64 { return f.failed }},
	}
	for i := range panels {
		panels[i].draw(&b, runs, x)
	}
	for i, r := range runs {
		at := right - 230 + 130*i
		fmt.Fprintf(&b, `<rect x="%d" y="10" width="14" height="4" fill="%s"/><text x="%d" y="16" fill="#111827">%s</text>`+"\n", at, colours[i], at+20, r.title)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// drawPhases marks where the phases of a run begin.
func drawPhases(b *strings.Builder, frames []frame, x func(float64) float64) {
	phase, row := "", 0
	for i := range frames {
		f := &frames[i]
		if f.phase == phase {
			continue
		}
		phase = f.phase
		fmt.Fprintf(b, `<line x1="%[1]g" y1="%[2]d" x2="%[1]g" y2="384" stroke="#d1d5db"/><text x="%[3]g" y="%[4]d" fill="#4b5563">%[5]s</text>`+"\n",
			math.Round(x(f.at)), border, math.Round(x(f.at))+4, border+10+14*(row%2), f.phase)
		row++
	}
}

func (p *panel) draw(b *strings.Builder, runs []demoRun, x func(float64) float64) {
	fmt.Fprintf(b, `<text x="%d" y="%g" fill="#111827">%s</text>`+"\n", left, p.top-6, p.title)
	for _, mark := range p.marks {
		fmt.Fprintf(b, `<line x1="%d" y1="%.1[2]f" x2="%[3]d" y2="%.1[2]f" stroke="#e5e7eb"/>`+"\n", left, p.y(mark), right)
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end" fill="#4b5563">%g</text>`+"\n", left-8, p.y(mark)+4, mark)
	}
	for i, r := range runs {
		var points strings.Builder
		for j := range r.frames {
			fmt.Fprintf(&points, "%.1f,%.1f ", x(r.frames[j].at), p.y(p.value(&r.frames[j])))
		}
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>`+"\n", colours[i], strings.TrimSpace(points.String()))
	}
}
