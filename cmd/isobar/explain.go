package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/plural"
)

func explainCommand() *cobra.Command {
	var flags remoteFlags
	var from string
	cmd := &cobra.Command{
		Use:   "explain SERVICE [--from REGION/ZONE]",
		Short: "Show why the clients of a locality get these weights for a service",
		Long: `Show why the clients in one locality get their weights for a service: their
demand; the capacity, load, cost and price of each locality; the binding
constraint; the next-best locality; and the shares that result in Envoy and gRPC.
--from accepts any locality: if no demand comes from there, the command shows what
clients there would get, and lists the localities with demand. --from "" means
clients without a locality. Without --from, the command lists the localities that
send requests, and their destinations.`,
		Example: "  isobar explain checkout\n  isobar explain checkout --from us-east/b\n  isobar explain checkout --from us-east/b -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("from") {
				return listSources(cmd, remote, args[0], flags.output)
			}
			if _, err := isobar.ParseLocality(from); err != nil {
				return asUsage(cmd, fmt.Errorf("--from: %w", err))
			}
			e, err := remote.Explain(cmd.Context(), args[0], from)
			if err != nil {
				return err
			}
			if flags.output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), e)
			}
			if err := writeExplanation(cmd.OutOrStdout(), &e, widthOf(cmd.OutOrStdout())); err != nil {
				return err
			}
			return writeSources(cmd, remote, &e)
		},
	}
	flags.register(cmd)
	cmd.ValidArgsFunction = flags.completeServices(0)
	cmd.Flags().StringVar(&from, "from", "", "the clients' locality: region/zone or region/zone/sub_zone")
	_ = cmd.RegisterFlagCompletionFunc("from", flags.completeSources) // fails only for a flag that is not there
	return cmd
}

// writeExplanation prints the head, the table of localities and the remarks.
func writeExplanation(w io.Writer, e *plan.Explanation, width int) error {
	var b strings.Builder
	writeHead(&b, e)
	b.WriteByte('\n')
	writeLocalities(&b, e.Localities, width)
	writeDataPlanes(&b, e)
	writeRemarks(&b, e)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeInputs prints which inputs are missing, and what follows from it.
func writeInputs(line func(name, format string, args ...any), e *plan.Explanation) {
	for _, x := range e.Inputs {
		switch {
		case x.Level.Effect() == "":
		case e.DegradationApplies:
			line(string(x.Level), "%s: %s", x, x.Level.Effect())
		default:
			line(string(x.Level), "%s: has no effect in mode %s with policy %s", x, e.Mode, e.Policy)
		}
	}
}

func writeHead(b *strings.Builder, e *plan.Explanation) {
	fmt.Fprintf(b, "%s from %s, plan %s of %s\n", e.Service, sourceName(e.Source), e.Version, e.Made.UTC().Format(time.RFC3339))
	if e.Summary != "" {
		fmt.Fprintf(b, "%s\n", e.Summary)
	}
	b.WriteByte('\n')
	line := func(name, format string, args ...any) {
		fmt.Fprintf(b, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("demand", "%s", demandLine(&e.Demand))
	mode := e.Mode.String()
	if e.Rollout != nil {
		mode += ", " + e.Rollout.String()
	}
	if e.MaxShift > 0 {
		mode += fmt.Sprintf(", at most %g percentage points from the baseline", e.MaxShift)
	}
	line("mode", "%s", mode)
	policy := e.Policy.String()
	if e.PolicyGap > 0 {
		policy += fmt.Sprintf(": %.2f ms of mean latency above the optimum, at most %.2f%% of its cost", e.PolicyMS, 100*e.PolicyGap)
	}
	line("policy", "%s", policy)
	line("coverage", "%s", coverage(e.Demand.Service, e.Coverage, 1))
	writeInputs(line, e)
	if e.Damping != "" {
		line("damped", "%s", e.Damping)
	}
	if e.Score != nil {
		line("score", "%s", e.Score)
	}
	if e.Hold != "" {
		line("held", "%s", e.Hold)
	}
	if e.Earlier != "" {
		line("earlier", "%s", e.Earlier)
	}
	line("binds", "%s: %s", e.Binding.Kind, e.Binding.Text)
	if e.RunnerUp != nil {
		line("runner-up", "%s, %s", e.RunnerUp.Locality, worse(e.RunnerUp.Worse))
	}
	if e.RequestLimit > 0 {
		line("limit", "each client has at most %d requests in progress, so that requests do not time out in queues", e.RequestLimit)
	}
	if e.Drop > 0 {
		line("drop", "%s of the requests, at the clients", percent(e.Drop))
	}
	writeClasses(line, e)
	if e.CeilingScale > raisedLeast {
		line("overflow", "demand exceeds the ceilings: Isobar raises them by %s", percent(e.CeilingScale-1))
	}
	line("gap", "at most %.2f%% from the optimum, %.2f%% as served", 100*e.Gap, 100*e.PlanGap)
}

// worse returns how a cost compares with another. What is held or bounded may
// leave a better one unused.
func worse(ms float64) string {
	switch {
	case ms >= 0.05:
		return fmt.Sprintf("%.1f ms worse", ms)
	case ms <= -0.05:
		return fmt.Sprintf("%.1f ms better", -ms)
	}
	return "as good"
}

func demandLine(d *plan.DemandExplained) string {
	if !d.Measured && d.Saved == 0 {
		return fmt.Sprintf("%.1f/s; no load was reported from here (whole service %.1f/s)", d.Rate, d.Service)
	}
	parts := []string{fmt.Sprintf("raw %.1f, %s", d.Raw, plural.Count(d.Nodes, "node", "nodes"))}
	if d.ReportAge > 0 {
		parts = append(parts, fmt.Sprintf("newest report %.1f s old", d.ReportAge))
	}
	for _, part := range []struct {
		name string
		rate float64
	}{{"saved", d.Saved}, {"dropped", d.Dropped}, {"errors", d.Errors}, {"off plan", d.OffPlan}} {
		if part.rate > 0 {
			parts = append(parts, fmt.Sprintf("%s %.1f", part.name, part.rate))
		}
	}
	if d.Variability > 0 {
		parts = append(parts, fmt.Sprintf("varies by %.0f%%", 100*d.Variability))
	}
	if d.Held > 0 {
		parts = append(parts, fmt.Sprintf("%d held for a missing report", d.Held))
	}
	return fmt.Sprintf("%.1f/s of %.1f/s for the whole service (%s)", d.Rate, d.Service, strings.Join(parts, ", "))
}

// writeLocalities prints the table of localities, no wider than width
// characters (0 = any), and beneath it what is special about some.
func writeLocalities(b *strings.Builder, rows []plan.LocalityExplained, width int) {
	columns, left := fitColumns(localityColumns(rows), width)
	writeColumns(b, columns)
	for i := range rows {
		if text := notes(&rows[i]); text != "" {
			fmt.Fprintf(b, "%s: %s\n", rows[i].Locality, text)
		}
	}
	writeLimits(b, rows)
	if len(left) > 0 {
		fmt.Fprintf(b, "These columns do not fit: %s. Widen the terminal, or use -o json.\n", strings.Join(left, ", "))
	}
}

// notes names what is special about a locality; often nothing.
func notes(r *plan.LocalityExplained) string {
	var out []string
	add := func(when bool, text string) {
		if when {
			out = append(out, text)
		}
	}
	add(r.Unreachable, "unreachable: almost all requests to it fail; it gets only a probe")
	add(r.Calls > 0, fmt.Sprintf("calls to other services make up %.2f ms of the price of a request served here", r.Calls))
	add(r.Preferred, "preferred")
	add(r.Forbidden, "not allowed from here (isolation or residency)")
	add(r.Reserve, "for failover only (isolation)")
	add(r.Egress > 0, fmt.Sprintf("egress makes up %.1f ms of its distance", r.Egress))
	add(r.Barred && !r.Unreachable, "unreachable from here: it gets only a probe")
	add(r.Keeps > 0, fmt.Sprintf("keeps %s of its traffic: the share of healthy endpoints is below the failover threshold", percent(r.Keeps)))
	add(r.Drained, "drained: too few endpoints are healthy")
	add(r.Full, "full")
	add(r.Draining > 0, plural.Count(r.Draining, "endpoint drains", "endpoints drain"))
	add(r.Assumed, "distance assumed")
	add(r.UnmanagedLoad > 0, fmt.Sprintf("unmanaged %.0f/s", r.UnmanagedLoad))
	add(r.ORCA > 0, "reports "+percent(r.ORCA)+" used")
	if r.Learned != nil {
		add(true, r.Learned.String())
	}
	add(r.Observed != "", r.Observed)
	return strings.Join(out, ", ")
}

// writeLimits prints what is known of the limits of each locality.
func writeLimits(b *strings.Builder, rows []plan.LocalityExplained) {
	for i := range rows {
		for j := range rows[i].Limits {
			fmt.Fprintf(b, "%s: %s\n", rows[i].Locality, rows[i].Limits[j].String())
		}
	}
}

// writeDataPlanes prints what each kind of client does with the assignment.
func writeDataPlanes(b *strings.Builder, e *plan.Explanation) {
	if e.DataPlanes.Envoy.Priorities == nil {
		return // an older server does not tell
	}
	b.WriteString("\nWhat clients do with this assignment\n")
	writeLoads(b, &e.DataPlanes)
	if len(e.DataPlanes.Envoy.Priorities) > 0 {
		writeColumns(b, shareColumns(&e.DataPlanes, false))
	}
}

func writeRemarks(b *strings.Builder, e *plan.Explanation) {
	if e.Deviation != nil {
		text := printable(e.Deviation.String())
		fmt.Fprintf(b, "\n%s%s\n", strings.ToUpper(text[:1]), text[1:])
	}
	section := func(title string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(b, "\n%s\n  %s\n", title, strings.Join(lines, "\n  "))
		}
	}
	var reasons, clients []string
	for _, r := range e.Reasons {
		place := ""
		if !r.Locality.IsZero() {
			place = r.Locality.String() + ": "
		}
		reasons = append(reasons, fmt.Sprintf("%s%s (%s)", place, r.Text, r.Code))
	}
	for _, c := range e.Clients {
		clients = append(clients, fmt.Sprintf("%s %.1f/s", orDash(c.Client), c.Rate))
	}
	section("Reasons", reasons)
	section("Warnings", e.Warnings)
	section("Called by", callLines(e.Calls))
	section("Clients", clients)
}

// percent shows a fraction.
func percent(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }

// mostSources bounds how many sources are named beneath an explanation.
const mostSources = 10

// writeSources tells who asked about a place that sends nothing which ones do.
func writeSources(cmd *cobra.Command, remote *admin.Remote, e *plan.Explanation) error {
	if e.Demand.Rate > 0 || e.Demand.Measured || e.Demand.Saved > 0 || e.Demand.Service <= 0 {
		return nil
	}
	sources, err := remote.Sources(cmd.Context(), e.Service)
	if err != nil {
		return fmt.Errorf("asking for the sources of %s: %w", e.Service, err)
	}
	if text := sourcesText(sources); text != "" {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "\nDemand comes from (see --from)\n%s", text)
	}
	return err
}

// sourcesText has a line for each source with demand, the largest first.
func sourcesText(sources []admin.SourceView) string {
	sources = slices.DeleteFunc(slices.Clone(sources), func(s admin.SourceView) bool { return s.Demand <= 0 })
	slices.SortStableFunc(sources, func(a, b admin.SourceView) int { return cmp.Compare(b.Demand, a.Demand) })
	var b strings.Builder
	for i := range sources[:min(len(sources), mostSources)] {
		fmt.Fprintf(&b, "  %s %.1f/s\n", sourceName(sources[i].Source), sources[i].Demand)
	}
	if more := len(sources) - mostSources; more > 0 {
		fmt.Fprintf(&b, "  and %d more\n", more)
	}
	return b.String()
}

func sourceName(l isobar.Locality) string {
	if l.IsZero() {
		return "clients without a locality"
	}
	return printable(l.String()) // as clients call it
}

// sourceList is what `isobar explain SERVICE -o json` prints.
type sourceList struct {
	Service string             `json:"service"`
	Version string             `json:"version"` // of the plan
	Sources []admin.SourceView `json:"sources"` // the largest demand first
}

// listSources prints the client localities of a service, and where they send.
func listSources(cmd *cobra.Command, remote *admin.Remote, service string, output outputFormat) error {
	view, err := remote.Plan(cmd.Context(), service)
	if err != nil {
		return err
	}
	list := sourceList{Service: service, Version: view.Version, Sources: []admin.SourceView{}}
	if len(view.Services) == 1 {
		list.Sources = append(list.Sources, view.Services[0].Sources...)
	}
	byLargest(list.Sources)
	if output == outputJSON {
		return writeJSON(cmd.OutOrStdout(), list)
	}
	_, err = io.WriteString(cmd.OutOrStdout(), list.text())
	return err
}

// text is a table of the sources, and the command that tells more.
func (l *sourceList) text() string {
	var b strings.Builder
	if len(l.Sources) == 0 {
		const none = "%s, plan %s: no client reports load on it or subscribes to it; --from REGION/ZONE shows what clients there would get\n"
		return fmt.Sprintf(none, l.Service, l.Version)
	}
	total := 0.0
	for i := range l.Sources {
		total += l.Sources[i].Demand
	}
	fmt.Fprintf(&b, "%s, plan %s: %s requests/s from %s\n\n", l.Service, l.Version, rate(total), plural.Count(len(l.Sources), "locality", "localities"))
	writeColumns(&b, sourceColumns(l.Sources))
	from := `""`
	if at := l.Sources[0].Source; !at.IsZero() {
		from = admin.ShellWord(printable(at.String()))
	}
	fmt.Fprintf(&b, "\nWhy: isobar explain %s --from %s\n", l.Service, from)
	return b.String()
}

func byLargest(sources []admin.SourceView) {
	slices.SortStableFunc(sources, func(a, b admin.SourceView) int { return cmp.Compare(b.Demand, a.Demand) })
}

// sourceColumns are those of the table of sources.
func sourceColumns(sources []admin.SourceView) []column {
	columns := []column{{head: "FROM"}, {head: "REQ/S"}, {head: "SENT TO"}}
	for i := range sources {
		s := &sources[i]
		columns[0].cells = append(columns[0].cells, sourceName(s.Source))
		columns[1].cells = append(columns[1].cells, rate(s.Demand))
		columns[2].cells = append(columns[2].cells, sharesText(s.Shares))
	}
	return columns
}

// sharesText lists where requests are sent, the largest share first.
func sharesText(shares []admin.ShareView) string {
	shares = slices.DeleteFunc(slices.Clone(shares), func(s admin.ShareView) bool { return s.Published <= 0 })
	slices.SortStableFunc(shares, func(a, b admin.ShareView) int { return cmp.Compare(b.Published, a.Published) })
	parts := make([]string, len(shares))
	for i, s := range shares {
		parts[i] = s.Locality.String() + " " + percent(s.Published)
	}
	return orDash(strings.Join(parts, ", "))
}

// localityColumns are distance, price, cost and latency in milliseconds,
// capacity and load in requests/s.
func localityColumns(rows []plan.LocalityExplained) []column {
	number := func(x float64) string { return fmt.Sprintf("%.1f", x) }
	where := func(known bool, text string) string {
		if known {
			return text
		}
		return "-"
	}
	// Where no demand comes from there is no target, and nothing landed.
	wanted := slices.ContainsFunc(rows, func(r plan.LocalityExplained) bool { return r.Target > 0 })
	landed := slices.ContainsFunc(rows, func(r plan.LocalityExplained) bool { return r.ObservedShare > 0 })
	columns := []struct {
		head  string
		spare int
		cell  func(r *plan.LocalityExplained) string
	}{
		{"LOCALITY", 0, func(r *plan.LocalityExplained) string { return r.Locality.String() }},
		{"TIER", 4, func(r *plan.LocalityExplained) string { return where(r.Tier >= 0, fmt.Sprintf("P%d", r.Tier)) }},
		{"DIST", 1, func(r *plan.LocalityExplained) string { return number(r.Distance) }},
		{"PRICE", 2, func(r *plan.LocalityExplained) string { return where(r.Capacity > 0, number(r.Price)) }}, // nothing can be bought there
		{"COST", 0, func(r *plan.LocalityExplained) string { return where(r.Capacity > 0, number(r.Cost)) }},
		{"HEALTHY", 5, func(r *plan.LocalityExplained) string { return fmt.Sprintf("%d/%d", r.Healthy, r.Endpoints) }},
		{"CAP", 1, func(r *plan.LocalityExplained) string { return fmt.Sprintf("%.0f", r.Capacity) }},
		{"LOAD", 0, func(r *plan.LocalityExplained) string { return fmt.Sprintf("%.0f", r.Load+r.UnmanagedLoad) }},
		{"USED", 1, func(r *plan.LocalityExplained) string { return percent(r.Utilization) }},
		{"CEIL", 6, func(r *plan.LocalityExplained) string { return fmt.Sprintf("%.0f%%", 100*r.Ceiling) }},
		{"TARGET", 3, func(r *plan.LocalityExplained) string { return where(wanted, percent(r.Target)) }},
		{"SHARE", 0, func(r *plan.LocalityExplained) string { return percent(r.Published) }},
		{"OBSERVED", 2, func(r *plan.LocalityExplained) string { return where(landed, percent(r.ObservedShare)) }},
		{"LATENCY", 7, func(r *plan.LocalityExplained) string { return where(r.Latency > 0, number(r.Latency)) }},
	}
	out := make([]column, len(columns))
	for i, c := range columns {
		out[i] = column{head: c.head, spare: c.spare, cells: make([]string, len(rows))}
		for j := range rows {
			out[i].cells[j] = c.cell(&rows[j])
		}
	}
	return out
}

// writeClasses tells whose requests are dropped first, in that order.
func writeClasses(line func(name, format string, args ...any), e *plan.Explanation) {
	name := "classes"
	for _, c := range slices.Backward(e.Classes) {
		who := ""
		if len(c.Clients) > 0 {
			who = ": " + printable(strings.Join(c.Clients, ", "))
		}
		line(name, "%s drops %s, at most %s; %.0f requests/s, %.0f from here%s", c.Class, percent(c.Drop), percent(c.MaxShed), c.Rate, c.Here, who)
		name = ""
	}
}

// callLines tell which services call this one, as configured and as measured.
func callLines(calls []plan.CallSeen) []string {
	var out []string
	for _, c := range calls {
		configured, measured, use := "not configured", "measurement inconclusive", ""
		if c.PerRequest > 0 {
			configured = fmt.Sprintf("%.3g per request configured", c.PerRequest)
		}
		if c.Measured > 0 {
			measured = fmt.Sprintf("%.3g measured", c.Measured)
		}
		if c.Used {
			use = "; demand is computed from what it serves"
		}
		out = append(out, fmt.Sprintf("%s: %s, %s, %.1f/s%s", c.Caller, configured, measured, c.Rate, use))
	}
	return out
}
