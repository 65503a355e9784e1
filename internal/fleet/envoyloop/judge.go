package envoyloop

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// Aim is something that a run should show.
type Aim struct {
	Aim    string `json:"aim"`
	Met    bool   `json:"met"`
	Detail string `json:"detail"`
}

// Limits of the aims.
const (
	mostBelow   = 0.01 // below Envoys without Isobar, of requests that succeed
	mostBad     = 0.01 // of a source's requests, to a zone that is of no use
	mostDropGap = 0.05
	mostDropEnd = 5 // ticks
)

// judge compares a result with the aims that its scenario has.
func (r *runner) judge(v *Result) (out []Aim) {
	add := func(aim string, met bool, format string, args ...any) {
		out = append(out, Aim{Aim: aim, Met: met, Detail: fmt.Sprintf(format, args...)})
	}
	if r.scenario.Mode == modeObserve {
		return []Aim{v.stays()}
	}
	if v.Alone != nil {
		out = append(out, v.beside()...)
	}
	if r.scenario.dead() {
		worst, allowed := 0.0, true
		var shares []string
		for z, s := range v.Isobar.Rest {
			// The probes are 1% themselves: chance may not make it fail.
			limit := mostBad + 2*math.Sqrt(variance(mostBad, v.Isobar.From[z]))
			worst, allowed = max(worst, s), allowed && s <= limit
			shares = append(shares, Zones[z].String()+" "+percent(s))
		}
		add("from the third tick on at most 1% of any source's requests to the bad zone (and 2 standard deviations)", allowed, "%s", strings.Join(shares, ", "))
	}
	if d := v.Drops; d != nil {
		add("drops within 5 percentage points of the needed ones", math.Abs(d.Dropped-d.Needed) <= mostDropGap,
			"needed %s, told %s, dropped %s", percent(d.Needed), percent(d.Told), percent(d.Dropped))
		add("drops ended within 5 ticks", d.EndTicks <= mostDropEnd, "%.1f ticks", d.EndTicks)
	}
	add("never in order while more than 1% of requests fail", v.Misled == 0, "%.1f s", v.Misled)
	return out
}

// beside are the aims that Envoys without Isobar set in the same run.
func (v *Result) beside() (out []Aim) {
	with, alone := &v.Isobar, v.Alone
	aim := func(part string, isobar, alone float64, of, ofAlone int) {
		// Which requests a full backend refuses is chance.
		limit := mostBelow + 2*math.Sqrt(variance(isobar, of)+variance(alone, ofAlone))
		out = append(out, Aim{
			Aim: "no more than 1 point below Envoy alone in " + part + " (and 2 standard deviations)", Met: isobar >= alone-limit,
			Detail: fmt.Sprintf("%s, Envoy alone %s", percent(isobar), percent(alone)),
		})
	}
	aim("the fault", with.During, alone.During, with.Of.During, alone.Of.During)
	aim("its last third", with.LastThird, alone.LastThird, with.Of.LastThird, alone.Of.LastThird)
	if v.Drops != nil { // Envoy alone drops nothing; drops have an aim of their own
		aim("the time after it, once drops must have ended", with.Later, alone.Later, with.Of.Later, alone.Of.Later)
	} else {
		aim("the time after it", with.After, alone.After, with.Of.After, alone.Of.After)
	}
	return out
}

// variance is that of a share of so many independent requests.
func variance(share float64, of int) float64 { return share * (1 - share) / float64(max(1, of)) }

// stays is the aim that every source is sent to its own zone from the beginning to
// the end. Envoys may still eject by themselves what fails too often.
func (v *Result) stays() Aim {
	return Aim{Aim: "every source is sent to its own zone all the time", Met: v.Away == 0, Detail: percent(v.Away) + " elsewhere at most"}
}

// Missed counts the aims that a result does not meet.
func (v *Result) Missed() (n int) {
	for _, a := range v.Verdicts {
		if !a.Met {
			n++
		}
	}
	return n
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// Write prints the result for people.
func (v *Result) Write(to io.Writer) error {
	w := new(strings.Builder)
	fmt.Fprintf(w, "\n%s: %s (%.0f s)\n", v.Scenario, v.About, v.Fault)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  requests that succeed\tbefore\tduring\tlast third\tafter\tfailures during, by response flag")
	line := func(name string, s *System) {
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%v\n", name, percent(s.Before), percent(s.During), percent(s.LastThird), percent(s.After), s.Flags)
	}
	if v.Alone != nil {
		line("Envoy alone", v.Alone)
	}
	line("Isobar", &v.Isobar)
	if err := t.Flush(); err != nil {
		return err
	}
	ticks := int(v.Fault / v.Tick)
	fmt.Fprintf(w, "  by tick of %.0f s from the begin of the fault; | is its end\n", v.Tick)
	series := func(name string, values []float64) {
		fmt.Fprintf(w, "    %-28s", name)
		for i, x := range values {
			if i == ticks {
				fmt.Fprint(w, " |")
			}
			fmt.Fprintf(w, " %3.0f", 100*x)
		}
		fmt.Fprintln(w)
	}
	if v.Alone != nil {
		series("Envoy alone succeeds, %", v.Alone.Ticks)
	}
	series("Isobar succeeds, %", v.Isobar.Ticks)
	for z := range Zones {
		series(fmt.Sprintf("%s to %s, %%", Zones[z], Zones[0]), v.Isobar.Bad[z])
	}
	if v.Drops != nil {
		series("told to drop, %", v.Drops.ByTick)
	}
	fmt.Fprintln(w, "  isobar status")
	for _, s := range v.Status {
		text := "in order"
		if !s.OK {
			text = strings.Join(s.Attention, "; ")
		}
		fmt.Fprintf(w, "    %+6.1f s  %s\n", s.At, text)
	}
	fmt.Fprintf(w, "  machine: %s\n", v.Machine)
	for _, a := range v.Verdicts {
		verdict := "met   "
		if !a.Met {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "  %s %s: %s\n", verdict, a.Aim, a.Detail)
	}
	_, err := io.WriteString(to, w.String())
	return err
}

// WriteTable prints one line for each result, as Markdown.
func WriteTable(w io.Writer, results []*Result) error {
	var b strings.Builder
	b.WriteString("\n| Requests that succeed: during the fault / last third / after | Envoy alone | Isobar | aims missed |\n|---|---|---|---|\n")
	cell := func(s *System) string {
		return fmt.Sprintf("%s / %s / %s", percent(s.During), percent(s.LastThird), percent(s.After))
	}
	for _, v := range results {
		alone := "not run"
		if v.Alone != nil {
			alone = cell(v.Alone)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %d |\n", v.About, alone, cell(&v.Isobar), v.Missed())
	}
	b.WriteString("\nOne run each, on a machine that does other things, too: differences of a point or two are noise.\n")
	_, err := io.WriteString(w, b.String())
	return err
}
