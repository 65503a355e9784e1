package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/isobar-xds/isobar/internal/fleet"
)

// verdictWidth is the width of the verdict: it fits a terminal of 80 columns
// and, unless much went wrong, 24 lines.
const verdictWidth = 79

// verdictText sets the modes beside each other.
func verdictText(v *fleet.Verdict) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i := range v.Outcomes {
		fmt.Fprintf(w, "\t%s", modeTitle(v.Outcomes[i].Mode))
	}
	phaseText(w, v, "Load step in %s", stepRows, func(o *fleet.Outcome) *fleet.PhaseOutcome { return &o.Step })
	takeoverText(w, v)
	hangText(w, v)
	phaseText(w, v, "Loss of %s", lossRows, func(o *fleet.Outcome) *fleet.PhaseOutcome { return &o.Loss })
	fmt.Fprint(w, "\nAll that failed")
	for i := range v.Outcomes {
		fmt.Fprintf(w, "\t%s", allFailed(&v.Outcomes[i]))
	}
	_ = w.Flush() // into memory
	text := withoutTrailingBlanks(b.String())
	b.Reset()
	b.WriteString(text + "\n\n")
	if late := latest(v); late > busyMS {
		fmt.Fprintf(&b, "Busy machine: clients sent up to %.0f ms late. The figures are unreliable.\n", late)
	}
	for _, note := range demoNotes(v) {
		b.WriteString(wrap(note, verdictWidth) + "\n")
	}
	if v.OK {
		b.WriteString(success(v) + "\n")
		return b.String()
	}
	for _, why := range v.Why {
		b.WriteString(wrap("FAILED: "+why, verdictWidth) + "\n")
	}
	return b.String()
}

// demoNotes say what the table means, where it needs a word.
func demoNotes(v *fleet.Verdict) []string {
	last := &v.Outcomes[len(v.Outcomes)-1]
	var notes []string
	if last.Step.SettledBelowLoad > 0 { // the demo came so far
		notes = append(notes, fmt.Sprintf("Settled: no request failed, no zone was above %.0f%% (after the loss: %.0f%%).",
			100*last.Step.SettledBelowLoad, 100*last.Loss.SettledBelowLoad))
	}
	if first := &v.Outcomes[0]; last.Hang.Failed > first.Hang.Failed && last.Hang.Found && first.Hang.Found {
		notes = append(notes, fmt.Sprintf("With %s, more requests failed in the hang, because %s still served part of the load step of %s.",
			modeTitle(last.Mode), last.Hang.Zone, last.Step.Zone))
	}
	return notes
}

// success is the last line of a good verdict. What a hung backend had is lost,
// as what a dying zone works on.
func success(v *fleet.Verdict) string {
	for i := range v.Outcomes {
		if v.Outcomes[i].Hang.Seconds > 0 {
			return "Isobar settled both times and served all that capacity, hang and loss allowed."
		}
	}
	return "Isobar settled both times and served all that capacity and loss allowed."
}

func withoutTrailingBlanks(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// wrap breaks a text at blanks; what follows a break is indented. A word that
// is longer than a line stays whole.
func wrap(text string, width int) string {
	var b strings.Builder
	length := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case length+1+len(word) > width:
			b.WriteString("\n ")
			length = 1
			fallthrough
		default:
			b.WriteString(" ")
			length++
		}
		b.WriteString(word)
		length += len(word)
	}
	return b.String()
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

// verdictRow is one line of a phase.
type verdictRow struct {
	title string
	cell  func(p *fleet.PhaseOutcome) string
}

var (
	latencyRows = []verdictRow{
		{"mean / p99 latency", func(p *fleet.PhaseOutcome) string { return latencies(p.MeanMS, p.P99MS) }},
		{"  in the last third", func(p *fleet.PhaseOutcome) string { return latencies(p.FinalMeanMS, p.FinalP99MS) }},
		{"fullest/cross-region", func(p *fleet.PhaseOutcome) string {
			return fmt.Sprintf("%.0f%% (%s) / %.1f%%", 100*p.FullestLoad, p.FullestZone, 100*p.CrossRegion)
		}},
	}
	stepRows = append(slices.Clip(latencyRows),
		verdictRow{"failed requests", func(p *fleet.PhaseOutcome) string { return fmt.Sprintf("%d of %d", p.Failed, p.Requests) }},
		verdictRow{"settled", settled})
	lossRows = append(slices.Clip(latencyRows),
		verdictRow{"failed as it died", func(p *fleet.PhaseOutcome) string {
			return fmt.Sprintf("%d under way, %d in 2 s", p.FailedUnderWay, p.FailedAtOnce)
		}},
		verdictRow{"failed after that", func(p *fleet.PhaseOutcome) string {
			return fmt.Sprintf("%d of %d", p.Failed, p.Requests)
		}},
		verdictRow{"checkers / settled", func(p *fleet.PhaseOutcome) string {
			if !p.CheckersFound {
				return "no / " + settled(p)
			}
			return fmt.Sprintf("in %.1f s / %s", p.CheckersSeconds, settled(p))
		}})
)

func settled(p *fleet.PhaseOutcome) string {
	if !p.Settled {
		return fmt.Sprintf("not within %.0f s", p.Seconds)
	}
	return fmt.Sprintf("after %.0f s", p.SecondsToSettle)
}

func latencies(mean, p99 float64) string { return bareMS(mean) + " / " + cellMS(p99) }

// allFailed counts the failures of a whole run.
func allFailed(o *fleet.Outcome) string {
	cell := fmt.Sprintf("%d of %d", o.Failed, o.Requests)
	if o.FailedElsewhere > 0 {
		cell += fmt.Sprintf(", %d elsewhere", o.FailedElsewhere)
	}
	return cell
}

// takeoverText is the block of the leader that was killed; nothing when none was.
func takeoverText(w *tabwriter.Writer, v *fleet.Verdict) {
	if len(v.Outcomes) == 0 || v.Outcomes[0].Takeover == nil {
		return
	}
	fmt.Fprint(w, "\nKill of the leader"+strings.Repeat("\t", len(v.Outcomes)))
	row := func(title string, cell func(*fleet.TakeoverOutcome) string) {
		fmt.Fprintf(w, "\n  %s", title)
		for i := range v.Outcomes {
			if t := v.Outcomes[i].Takeover; t != nil {
				fmt.Fprintf(w, "\t%s", cell(t))
			}
		}
	}
	row("next leader's plan", func(t *fleet.TakeoverOutcome) string {
		if t.Successor == "" {
			return "not within 10 s"
		}
		return fmt.Sprintf("after %.1f s, by %s", t.Seconds, t.Successor)
	})
	row("failed in 10 s", func(t *fleet.TakeoverOutcome) string { return fmt.Sprintf("%d of %d", t.Failed, t.Requests) })
}

// hangText is the block of the backend that hung; nothing when none did.
func hangText(w *tabwriter.Writer, v *fleet.Verdict) {
	if len(v.Outcomes) == 0 || v.Outcomes[0].Hang.Seconds == 0 {
		return
	}
	fmt.Fprintf(w, "\nHang in %s", v.Outcomes[0].Hang.Zone)
	for i := range v.Outcomes {
		fmt.Fprintf(w, "\t%s", hangFound(&v.Outcomes[i].Hang))
	}
	fmt.Fprint(w, "\n  requests lost to it")
	for i := range v.Outcomes {
		fmt.Fprintf(w, "\t%s", hangLost(&v.Outcomes[i].Hang))
	}
}

// hangFound returns how soon checkers found the hang, and how soon after its end
// the backend was used again.
func hangFound(h *fleet.HangOutcome) string {
	switch {
	case !h.Found:
		return "missed"
	case !h.Back:
		return fmt.Sprintf("found %.1f s, not back", h.FoundSeconds)
	}
	return fmt.Sprintf("found %.1f s, back %.1f s", h.FoundSeconds, h.BackSeconds)
}

func hangLost(h *fleet.HangOutcome) string {
	if !h.Drained {
		return fmt.Sprintf("%d, never drained", h.Failed)
	}
	return fmt.Sprintf("%d, none after %.1f s", h.Failed, h.DrainedSeconds)
}

func phaseText(
	w *tabwriter.Writer, v *fleet.Verdict, title string, rows []verdictRow, phase func(*fleet.Outcome) *fleet.PhaseOutcome,
) {
	if len(v.Outcomes) == 0 {
		return
	}
	fmt.Fprintf(w, "\n"+title+strings.Repeat("\t", len(v.Outcomes)), phase(&v.Outcomes[0]).Zone)
	for _, row := range rows {
		fmt.Fprintf(w, "\n  %s", row.title)
		for i := range v.Outcomes {
			fmt.Fprintf(w, "\t%s", row.cell(phase(&v.Outcomes[i])))
		}
	}
}
