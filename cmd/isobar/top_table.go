package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
)

// topSort is what services are sorted by: the value of --sort.
type topSort string

const (
	byUtilization topSort = "utilization"
	byDemand      topSort = "demand"
	byShift       topSort = "shift"
	byDrop        topSort = "drop"
	byName        topSort = "name"
)

var topSorts = []topSort{byUtilization, byDemand, byShift, byDrop, byName}

var errTopSort = errors.New("want utilization, demand, shift, drop or name")

// String implements pflag.Value.
func (s *topSort) String() string { return string(*s) }

// Type implements pflag.Value; the help shows it.
func (s *topSort) Type() string { return "utilization|demand|shift|drop|name" }

// Set implements pflag.Value.
func (s *topSort) Set(text string) error {
	if !slices.Contains(topSorts, topSort(text)) {
		return errTopSort
	}
	*s = topSort(text)
	return nil
}

func (s *topSort) register(cmd *cobra.Command) {
	*s = byUtilization
	cmd.Flags().Var(s, "sort", "order of services: the fullest, the largest, the most shifted or the most dropped first, or by name")
	var names []cobra.Completion
	for _, sort := range topSorts {
		names = append(names, string(sort))
	}
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that is not there
}

// order sorts services in place; ties go by name.
func (s *topSort) order(services []admin.ServiceOverview) {
	key := func(o *admin.ServiceOverview) float64 {
		switch *s {
		case byUtilization:
			return utilization(o)
		case byDemand:
			return o.Demand
		case byShift:
			return o.Shift
		case byDrop:
			return o.Drop
		case byName:
		}
		return 0
	}
	slices.SortFunc(services, func(a, b admin.ServiceOverview) int {
		return cmp.Or(cmp.Compare(key(&b), key(&a)), strings.Compare(a.Name, b.Name))
	})
}

// utilization of the fullest locality; less than any where none has capacity.
func utilization(o *admin.ServiceOverview) float64 {
	if o.Fullest == nil {
		return -1
	}
	return o.Fullest.Utilization
}

// topColumns are those of the table of services.
func topColumns(services []admin.ServiceOverview) []column {
	columns := []struct {
		head  string
		spare int
		cell  func(o *admin.ServiceOverview) string
	}{
		{"SERVICE", 0, func(o *admin.ServiceOverview) string { return orDash(o.Name) }},
		{"REQ/S", 0, func(o *admin.ServiceOverview) string { return rate(o.Demand) }},
		{"FULLEST", 3, func(o *admin.ServiceOverview) string {
			if o.Fullest == nil {
				return "-"
			}
			return orDash(o.Fullest.Locality.String())
		}},
		{"USED", 0, func(o *admin.ServiceOverview) string {
			if o.Fullest == nil {
				return "-"
			}
			return percent(o.Fullest.Utilization)
		}},
		{"SHIFT", 0, func(o *admin.ServiceOverview) string { return percentOrDash(o.Shift) }},
		{"MOVING", 4, func(o *admin.ServiceOverview) string { return percentOrDash(o.Moving) }},
		{"DROP", 2, func(o *admin.ServiceOverview) string { return percentOrDash(o.Drop) }},
		{"HEALTHY", 5, func(o *admin.ServiceOverview) string { return fmt.Sprintf("%d/%d", o.Healthy, o.Endpoints) }},
		{"COVER", 6, func(o *admin.ServiceOverview) string { return coverage(o.Demand, o.Coverage, 0) }},
		{"GAP", 7, func(o *admin.ServiceOverview) string {
			if !o.Solved {
				return "-"
			}
			return fmt.Sprintf("%.2f%%", 100*o.Gap)
		}},
		{"MODE", 3, modeCell},
		{"STATE", 0, topState},
	}
	out := make([]column, len(columns))
	for i, c := range columns {
		out[i] = column{head: c.head, spare: c.spare, cells: make([]string, len(services))}
		for j := range services {
			out[i].cells[j] = c.cell(&services[j])
		}
	}
	return out
}

// topState says what is out of the ordinary in a few words.
func topState(o *admin.ServiceOverview) string {
	var out []string
	switch {
	case o.Paused != nil:
		out = append(out, "paused")
	case o.Hold != "":
		why, _, _ := strings.Cut(o.Hold, ":") // isobar status and explain tell all of it
		out = append(out, "held: "+printable(why))
	}
	if o.Endpoints > 0 && o.Healthy == 0 {
		out = append(out, "nothing healthy")
	}
	if o.CeilingScale > raisedLeast {
		out = append(out, "overflow "+percent(o.CeilingScale-1))
	}
	return strings.Join(out, ", ")
}

// raisedLeast is the factor up to which a raised ceiling is a rounding error.
const raisedLeast = 1.001

// rate shows requests/s.
func rate(x float64) string {
	if x > 0 && x < 10 {
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// percentOrDash shows less than a twentieth of a percent as a dash, so that the
// eye finds the rest.
func percentOrDash(x float64) string {
	if x < 0.0005 {
		return "-"
	}
	return percent(x)
}

// coverage shows a coverage with so many digits; without demand there is nothing to cover.
func coverage(demand, covered float64, digits int) string {
	if demand <= 0 && covered >= 1 {
		return "-"
	}
	return fmt.Sprintf("%.*f%%", digits, 100*covered)
}

// topHead are the lines above the table, but for what needs attention.
func topHead(o *admin.Overview, now time.Time) []string {
	s, held, paused := &o.Status, 0, 0
	for i := range o.Services {
		switch {
		case o.Services[i].Paused != nil:
			paused++
		case o.Services[i].Hold != "":
			held++
		}
	}
	version := "no plan yet"
	if s.Version != "" {
		version = fmt.Sprintf("plan %s, %s old", printable(s.Version), age(s.AgeSeconds))
	}
	loop := fmt.Sprintf("tick %d", s.Ticks)
	if s.Ticks > 0 {
		loop += ", took " + shortMS(time.Duration(s.TickSeconds*float64(time.Second)))
	}
	c := &s.Clients
	clients := fmt.Sprintf("clients %d: %d in sync, %d behind, %d refusing, %d reporting load; checkers %d",
		c.Total, c.InSync, c.Behind, c.Refusing, c.Reporting, s.Checkers)
	services := fmt.Sprintf("services %d: %s requests/s, coverage %s; held %d, paused %d",
		s.Services, rate(s.Demand), coverage(s.Demand, s.Coverage, 1), held, paused)
	return []string{
		fmt.Sprintf("isobar top  %s  %s  %s", now.Format(time.TimeOnly), version, loop),
		clients, services,
	}
}

// topAlarms are the lines of what needs attention, at most so many. Notices are
// left to isobar status.
func topAlarms(s *admin.Status, most int) []string {
	if s.OK {
		return []string{"no problems"}
	}
	var all []string
	for i := range s.Attention {
		if a := &s.Attention[i]; a.Severity != admin.Notice {
			all = append(all, "! "+printable(string(a.Severity))+": "+printable(a.Text))
		}
	}
	if len(all) > most || s.More > 0 {
		all = append(all[:min(len(all), max(0, most-1))], "! and more: isobar status lists them")
	}
	return all
}

// topBlock is everything as plain lines; rows bounds the services, width the
// columns; 0 = all.
func topBlock(o *admin.Overview, now time.Time, rows, width int) string {
	var b strings.Builder
	for _, line := range slices.Concat(topHead(o, now), topAlarms(&o.Status, len(o.Status.Attention))) {
		b.WriteString(line + "\n")
	}
	shown := o.Services
	if rows > 0 && len(shown) > rows {
		shown = shown[:rows]
	}
	if len(shown) > 0 {
		columns, _ := fitColumns(topColumns(shown), width)
		writeColumns(&b, columns)
	}
	if left := len(o.Services) - len(shown); left > 0 {
		fmt.Fprintf(&b, "and %d more\n", left)
	}
	return b.String()
}

// modeCell is the mode of a service; of mode auto also what it serves now.
func modeCell(o *admin.ServiceOverview) string {
	if o.Mode == isobar.ModeAuto {
		return "auto: " + o.Serves.String()
	}
	return o.Mode.String()
}
