package main

import (
	"fmt"
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

// frameLine is a frame as one line.
func frameLine(f *fleet.Frame) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-14s %3.0fs  %-32s", modeTitle(f.Mode), f.At.Seconds(), f.Phase)
	for i := range f.Now.Zones {
		z := &f.Now.Zones[i]
		fmt.Fprintf(&b, "  %s %3.0f%%", z.Locality, 100*z.Load)
	}
	fmt.Fprintf(&b, "  mean %s  p99 %s  failed %d", shortMS(f.Now.Mean), shortMS(f.Now.P99), f.Now.Failed)
	return b.String()
}

// barWidth is the width of a load bar at 100%.
const barWidth = 20

// frameTable is a frame as a table.
func frameTable(f *fleet.Frame) string {
	var b strings.Builder
	fmt.Fprintf(&b, "isobar demo   %s (mode %s)   %.0f of %.0f s   %s\n\n",
		modeTitle(f.Mode), f.Mode, f.At.Seconds(), f.Length.Seconds(), f.Phase)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "zone\tdemand\tarrives\tload\t\tits clients are served in")
	for i := range f.Now.Zones {
		z := &f.Now.Zones[i]
		fmt.Fprintf(w, "\n%s\t%.0f/s\t%.0f/s\t%3.0f%%\t%s\t%s", z.Locality, z.Demand, z.Arrived, 100*z.Load, bar(z.Load), landings(f, z))
	}
	_ = w.Flush() // into memory
	fmt.Fprintf(&b, "\n\nlast 2 s      mean %s   p99 %s   %d failed   %.0f%% cross-region\n",
		shortMS(f.Now.Mean), shortMS(f.Now.P99), f.Now.Failed, 100*f.Now.CrossRegion)
	fmt.Fprintf(&b, "this run      mean %s   p99 %s   %d failed   %.0f%% cross-region\n",
		shortMS(f.Overall.Mean), shortMS(f.Overall.P99), f.Overall.Failed, 100*f.Overall.CrossRegion)
	return b.String()
}

// bar draws a load; what exceeds the capacity stands behind a mark.
func bar(load float64) string {
	n := int(load*barWidth + 0.5)
	if n <= barWidth {
		return strings.Repeat("█", max(0, n)) + strings.Repeat("·", barWidth-max(0, n))
	}
	return strings.Repeat("█", barWidth) + "|" + strings.Repeat("█", min(barWidth, n-barWidth))
}

// landings tells where a zone's clients are served.
func landings(f *fleet.Frame, z *fleet.ZoneSummary) string {
	total := 0.0
	for _, r := range z.Sent {
		total += r
	}
	var parts []string
	for i, r := range z.Sent {
		if total > 0 && r/total >= 0.005 {
			parts = append(parts, fmt.Sprintf("%s %.0f%%", f.Now.Zones[i].Locality, 100*r/total))
		}
	}
	return strings.Join(parts, "  ")
}

// verdictText sets the modes beside each other.
func verdictText(v *fleet.Verdict) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for i := range v.Outcomes {
		fmt.Fprintf(w, "\t%s", modeTitle(v.Outcomes[i].Mode))
	}
	phaseText(w, v, "Load step in %s", func(o *fleet.Outcome) *fleet.PhaseOutcome { return &o.Step })
	phaseText(w, v, "Loss of %s", func(o *fleet.Outcome) *fleet.PhaseOutcome { return &o.Loss })
	_ = w.Flush() // into memory
	text := withoutTrailingBlanks(b.String())
	b.Reset()
	b.WriteString(text + "\n\n")
	if late := latest(v); late > busyMS {
		fmt.Fprintf(&b, "This machine was busy: requests left up to %.0f ms late, which spoils the figures.\n", late)
	}
	if v.OK {
		b.WriteString("Isobar settled both times and served all that capacity allows.\n")
		return b.String()
	}
	for _, why := range v.Why {
		fmt.Fprintf(&b, "FAILED: %s\n", why)
	}
	return b.String()
}

func withoutTrailingBlanks(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// busyMS is how late the load generator may be before it is worth a remark.
const busyMS = 250

// latest is how late the load generator was at worst.
func latest(v *fleet.Verdict) float64 {
	late := 0.0
	for i := range v.Outcomes {
		late = max(late, v.Outcomes[i].Step.LateMS, v.Outcomes[i].Loss.LateMS)
	}
	return late
}

// verdictRows are the lines of one phase.
var verdictRows = []struct {
	title string
	cell  func(p *fleet.PhaseOutcome) string
}{
	{"mean latency", func(p *fleet.PhaseOutcome) string { return cellMS(p.MeanMS) }},
	{"p99 latency", func(p *fleet.PhaseOutcome) string { return cellMS(p.P99MS) }},
	{"mean latency, last third", func(p *fleet.PhaseOutcome) string { return cellMS(p.FinalMeanMS) }},
	{"p99 latency, last third", func(p *fleet.PhaseOutcome) string { return cellMS(p.FinalP99MS) }},
	{"fullest zone, last third", func(p *fleet.PhaseOutcome) string {
		return fmt.Sprintf("%.0f%% (%s)", 100*p.FullestLoad, p.FullestZone)
	}},
	{"failed requests", func(p *fleet.PhaseOutcome) string {
		if p.FailedAtOnce > 0 {
			return fmt.Sprintf("%d of %d (and %d in the first 2 s)", p.Failed, p.Requests, p.FailedAtOnce)
		}
		return fmt.Sprintf("%d of %d", p.Failed, p.Requests)
	}},
	{"cross-region share", func(p *fleet.PhaseOutcome) string { return fmt.Sprintf("%.1f%%", 100*p.CrossRegion) }},
	{"settled", func(p *fleet.PhaseOutcome) string {
		if !p.Settled {
			return fmt.Sprintf("not within %.0f s", p.Seconds)
		}
		return fmt.Sprintf("after %.0f s", p.SecondsToSettle)
	}},
}

func phaseText(w *tabwriter.Writer, v *fleet.Verdict, title string, phase func(*fleet.Outcome) *fleet.PhaseOutcome) {
	if len(v.Outcomes) == 0 {
		return
	}
	fmt.Fprintf(w, "\n"+title+strings.Repeat("\t", len(v.Outcomes)), phase(&v.Outcomes[0]).Zone)
	for _, row := range verdictRows {
		fmt.Fprintf(w, "\n  %s", row.title)
		for i := range v.Outcomes {
			fmt.Fprintf(w, "\t%s", row.cell(phase(&v.Outcomes[i])))
		}
	}
}

func shortMS(d time.Duration) string { return cellMS(float64(d) / float64(time.Millisecond)) }

func cellMS(ms float64) string {
	if ms < 10 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}
