package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/isobar-xds/isobar/internal/sim"
)

// result is one scenario under all policies.
type result struct {
	Scenario  string                 `json:"scenario"`
	About     string                 `json:"about"`
	Load      string                 `json:"load_average"` // of the machine at the end
	Figures   []figures              `json:"policies"`
	Simulated map[string]simulations `json:"simulated"` // by the simulator's name of the policy
}

// write prints the result as Markdown.
func (r *result) write(to io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n`%s`: %s (load average %s)\n\n", r.Scenario, r.About, r.Load)
	b.WriteString("| Policy | Mean, ms | last third | 99th percentile | Failed | Fullest zone | its peak | Cross-region | MB | " +
		"Simulated: mean, failed (lowest to highest) |\n" +
		"|---|---|---|---|---|---|---|---|---|---|\n")
	for i := range r.Figures {
		f := &r.Figures[i]
		fmt.Fprintf(&b, "| `%s` | %.0f | %.0f | %.0f | %.2f%% | %.0f%% | %.0f%% | %.1f%% | %.1f | %s |\n", f.Policy, f.MeanMS, f.Settled, f.P99MS,
			100*f.Failed, 100*f.Fullest, 100*f.Peak, 100*f.Cross, f.CrossMB, r.compared(f))
	}
	for _, p := range policies {
		if s := r.Simulated[p.simulated]; s != nil && len(r.Figures) == 0 { // only the simulator was played
			fmt.Fprintf(&b, "| `%s` | - | - | - | - | - | - | - | - | %s |\n", p.Name, s)
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// compared tells what the simulator says of the same, and whether it is near.
func (r *result) compared(f *figures) string {
	s := r.twin(f.Policy)
	if s == nil {
		return "-"
	}
	if !s.near(simulation{f.MeanMS, f.Failed}) {
		return s.String() + " *"
	}
	return s.String()
}

// near reports whether a real result is what the simulator finds, within its limits.
func (s simulations) near(f simulation) bool {
	low, _, high := s.spread(meanOf)
	least, _, most := s.spread(failedOf)
	return f.MeanMS*(1+trueMean) >= low && f.MeanMS*(1-trueMean) <= high && f.Failed+trueFailed >= least && f.Failed-trueFailed <= most
}

// String returns the medians, and the lowest and highest of the repetitions.
func (s simulations) String() string {
	low, mean, high := s.spread(meanOf)
	least, failed, most := s.spread(failedOf)
	return fmt.Sprintf("%.0f (%.0f to %.0f), %.1f%% (%.1f to %.1f%%)", mean, low, high, 100*failed, 100*least, 100*most)
}

// twin is what the simulator finds for a policy, nil where it has none.
func (r *result) twin(name string) simulations {
	for _, p := range policies {
		if p.Name == name && p.simulated != "" {
			return r.Simulated[p.simulated]
		}
	}
	return nil
}

// draw writes a chart of the mean latency over time.
func (r *result) draw(dir string, warm float64) error {
	p := plot.New()
	p.Title.Text = r.About
	p.X.Label.Text = "seconds from the event"
	p.Y.Label.Text = "mean latency, ms (failed = timeout)"
	p.Y.Min = 0
	p.Legend.Top = true
	p.BackgroundColor = nil
	for i := range r.Figures {
		points := make(plotter.XYs, 0, len(r.Figures[i].Periods))
		for n, ms := range r.Figures[i].Periods {
			if at := (float64(n) + 0.5) * period.Seconds(); at >= starting.Seconds() {
				points = append(points, plotter.XY{X: at - warm, Y: ms})
			}
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.Color, line.Dashes = plotutil.Color(i), plotutil.Dashes(i)
		line.Width = vg.Points(1)
		if r.Figures[i].Policy == sim.NameIsobar {
			line.Width, line.Dashes = vg.Points(2.5), nil
		}
		p.Add(line)
		p.Legend.Add(r.Figures[i].Policy, line)
	}
	return p.Save(18*vg.Centimeter, 9*vg.Centimeter, filepath.Join(dir, "duel-"+r.Scenario+".svg"))
}
