package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/replay"
)

// writeReplay prints a line for each plan, the comparison with another
// configuration, and the verdict.
func writeReplay(w io.Writer, r *replayReport, quiet bool) error {
	var b strings.Builder
	if !quiet && len(r.Plans) > 0 {
		writePlans(&b, r)
		b.WriteByte('\n')
	}
	if r.Total.WhatIf != nil {
		writeComparison(&b, "all services", r.Total)
		if len(r.Services) > 1 {
			for _, name := range slices.Sorted(maps.Keys(r.Services)) {
				if c := r.Services[name]; c.WhatIf != nil && *c.WhatIf != c.Decided {
					writeComparison(&b, printable(name), c)
				}
			}
		}
	}
	writeVerdict(&b, r)
	_, err := io.WriteString(w, b.String())
	return err
}

func writePlans(b *strings.Builder, r *replayReport) {
	heads := []string{"TIME", "PLAN", "BY", "DEMAND/S", "LATENCY", "FULLEST", "MOVED/S", "SHED/S"}
	what := r.Total.WhatIf != nil
	if what {
		heads = append(heads, "| LATENCY", "FULLEST", "MOVED/S", "SHED/S")
	}
	columns := make([]column, len(heads)+1) // and notes
	for i, head := range heads {
		columns[i].head = head
	}
	for i := range r.Plans {
		p := &r.Plans[i]
		cells := []string{p.At.Format(time.TimeOnly), fmt.Sprint(p.Version), p.How, fmt.Sprintf("%.1f", p.Decided.Demand)}
		cells = append(cells, p.Decided.cells("")...)
		if what {
			m := momentary{}
			if p.WhatIf != nil {
				m = *p.WhatIf
			}
			cells = append(cells, m.cells("| ")...)
		}
		note := ""
		switch {
		case !p.Same:
			note = "not the same"
		case p.Failed != "":
			note = "planning failed: " + printable(p.Failed)
		}
		for j, cell := range append(cells, note) {
			columns[j].cells = append(columns[j].cells, cell)
		}
	}
	writeColumns(b, columns)
}

func (m *momentary) cells(before string) []string {
	return []string{before + millis(m.Latency), percent(m.Fullest), fmt.Sprintf("%.1f", m.Moved), fmt.Sprintf("%.1f", m.Shed)}
}

func writeComparison(b *strings.Builder, of string, c comparison) {
	columns := []column{{head: of}, {head: "DECIDED"}, {head: "WHAT IF"}}
	row := func(name string, cell func(*summary) string) {
		for i, text := range []string{"  " + name, cell(&c.Decided), cell(c.WhatIf)} {
			columns[i].cells = append(columns[i].cells, text)
		}
	}
	row("mean latency", func(s *summary) string { return millis(s.Latency) })
	row("fullest locality, mean", func(s *summary) string { return percent(s.FullestMean) })
	row("fullest locality, worst", func(s *summary) string { return percent(s.Fullest) + " " + s.Where })
	row("ticks above a ceiling", func(s *summary) string { return percent(s.Over) })
	row("to other zones", func(s *summary) string { return percent(s.CrossZone) })
	row("to other regions", func(s *summary) string { return percent(s.CrossRegion) })
	row("dropped", func(s *summary) string { return percent(s.Shed) })
	row("moved per tick", func(s *summary) string { return fmt.Sprintf("%.2f%%", 100*s.Moved) })
	writeColumns(b, columns)
	b.WriteByte('\n')
}

func writeVerdict(b *strings.Builder, r *replayReport) {
	if len(r.Plans) == 0 {
		b.WriteString("the trace holds no plan\n")
		return
	}
	fmt.Fprintf(b, "%s of %s by isobar %s: %d ticks, %d carried over, %d rolled back in %s\n",
		count(r.plans(), "plan", "plans"), count(r.Recordings, "recording", "recordings"), printable(r.Isobar),
		r.Decided[replay.HowTick], r.Decided[replay.HowRebase], r.Decided[replay.HowRollback], r.To.Sub(r.From).Round(time.Second))
	if r.Same {
		b.WriteString("all of them are decided again the same, byte for byte\n")
		return
	}
	fmt.Fprintf(b, "%d of them are not the same\n", r.Differ)
}
