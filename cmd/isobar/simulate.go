package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/dataplane"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/replay"
	"github.com/isobar-xds/isobar/internal/sim"
)

// simulateFlags are the flags of `isobar simulate`.
type simulateFlags struct {
	output   outputFormat
	policies []string
	seed     uint64
	html     string
	record   string
}

func simulateCommand() *cobra.Command {
	var flags simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate SCENARIO...",
		Short: "Compare policies in a simulated fleet",
		Long: `Run Isobar and other policies in a simulated fleet, in virtual time, and
print the latency, utilization and traffic of each policy. A scenario is a
YAML file; for a directory, the command runs all *.yaml files in it; - is
standard input. The same scenario and seed give the same result, byte for byte.`,
		Example: "  isobar simulate examples/scenarios\n  isobar simulate flash.yaml --policy isobar,failover -o json\n" +
			"  isobar simulate flash.yaml --html flash.html\n" +
			"  isobar simulate flash.yaml --record flash.trace && isobar replay flash.trace --set policy=waterfall-by-region",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("seed") {
				flags.seed = 0
			} else if flags.seed == 0 {
				return usageError{errors.New("--seed must be at least 1")}
			}
			return simulate(cmd.Context(), &flags, args, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags.output.register(cmd)
	cmd.Flags().StringSliceVar(&flags.policies, "policy", nil, "policies to run, by name (default: all)")
	cmd.Flags().Uint64Var(&flags.seed, "seed", 0, "seed instead of the scenario's")
	cmd.Flags().StringVar(&flags.html, "html", "", "also write a page with charts to this `file`")
	cmd.Flags().StringVar(&flags.record, "record", "", "write Isobar's decisions and their inputs to this `file`, for isobar replay")
	_ = cmd.MarkFlagFilename("html", "html") // these fail only for a flag that is not there
	_ = cmd.MarkFlagFilename("record")
	_ = cmd.RegisterFlagCompletionFunc("policy", cobra.FixedCompletions(policyNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// simulateGC is by how many percent the heap may grow between collections.
const simulateGC = 400

// simulation is what became of one scenario.
type simulation struct {
	Name    string        `json:"name"`
	Title   string        `json:"title,omitempty"`
	Seed    uint64        `json:"seed"`
	Results []*sim.Result `json:"policies"`
}

func simulate(ctx context.Context, flags *simulateFlags, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	// Memory is cheap beside the time that collecting it more often takes.
	defer debug.SetGCPercent(debug.SetGCPercent(simulateGC))
	policies, err := choosePolicies(flags.policies)
	if err != nil {
		return err
	}
	files, err := scenarioFiles(args)
	if err != nil {
		return err
	}
	scenarios, err := readScenarios(files, flags.seed, stdin, stderr)
	if err != nil {
		return err
	}
	record, err := newSimulationRecorder(flags.record, files, policies)
	if err != nil {
		return err
	}
	out, err := runScenarios(ctx, files, scenarios, policies, stderr)
	if err = errors.Join(err, record.end()); err != nil {
		return err
	}
	return reportSimulations(flags, out, stdout)
}

// readScenarios reads all files before any is run: an error in the last one
// shall not wait. seed replaces those of the files unless it is 0.
func readScenarios(files []string, seed uint64, stdin io.Reader, stderr io.Writer) ([]*config.Scenario, error) {
	scenarios := make([]*config.Scenario, len(files))
	var wrong []error
	for i, file := range files {
		data, err := readInput(file, stdin)
		if err != nil {
			return nil, err
		}
		s, warnings, err := config.DecodeScenario(inputName(file), data)
		printWarnings(stderr, warnings)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		if seed > 0 {
			s.Seed = seed
		}
		scenarios[i] = s
	}
	return scenarios, errors.Join(wrong...)
}

// runScenarios runs one scenario after the other; progress shows on stderr.
func runScenarios(ctx context.Context, files []string, scenarios []*config.Scenario, policies []sim.Policy, stderr io.Writer) ([]simulation, error) {
	out := make([]simulation, len(files))
	bar := newProgressBar(stderr, len(files))
	defer bar.clear()
	for i, s := range scenarios {
		results, err := sim.Compare(ctx, simScenario(s), policies, func(done float64) { bar.show(i, scenarioName(files[i]), done) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", inputName(files[i]), err)
		}
		out[i] = simulation{Name: scenarioName(files[i]), Title: s.Title, Seed: s.Seed, Results: results}
	}
	return out, nil
}

func reportSimulations(flags *simulateFlags, all []simulation, stdout io.Writer) error {
	if flags.html != "" {
		var page bytes.Buffer
		if err := writeSimulationPage(&page, all); err != nil {
			return err
		}
		if err := os.WriteFile(flags.html, page.Bytes(), 0o644); err != nil { //nolint:gosec // a report, to be shown around
			return err
		}
	}
	if flags.output == outputJSON {
		return writeJSON(stdout, all)
	}
	_, err := io.WriteString(stdout, simulationTables(all, widthOf(stdout)))
	return err
}

// scenarioFiles resolves directories.
func scenarioFiles(args []string) ([]string, error) {
	var out []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if arg == "-" || err != nil || !info.IsDir() {
			out = append(out, arg) // reading it tells what is wrong with it
			continue
		}
		found, err := filepath.Glob(filepath.Join(arg, "*.yaml"))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s: no *.yaml files in this directory", arg)
		}
		out = append(out, found...)
	}
	return out, nil
}

func scenarioName(file string) string {
	return strings.TrimSuffix(filepath.Base(inputName(file)), ".yaml")
}

func policyNames() []string {
	var out []string
	for _, p := range sim.Policies() {
		out = append(out, p.Name)
	}
	return out
}

func choosePolicies(names []string) ([]sim.Policy, error) {
	all := sim.Policies()
	if len(names) == 0 {
		return all, nil
	}
	var out []sim.Policy
	for _, n := range names {
		i := slices.IndexFunc(all, func(p sim.Policy) bool { return p.Name == n })
		if i < 0 {
			return nil, usagef("unknown policy %q; want some of %s", n, strings.Join(policyNames(), ", "))
		}
		out = append(out, all[i])
	}
	return out, nil
}

// simScenario turns what a file says into what is run.
func simScenario(f *config.Scenario) *sim.Scenario {
	s := &sim.Scenario{
		Seed:     f.Seed,
		Topology: &isobar.Topology{Revision: 1, Services: f.Services, Network: f.Network},
		Length:   f.Length, Warmup: f.Warmup, Tick: f.Tick, Interval: f.ReportInterval,
		ReportDelay: sim.Delay(f.ReportDelay), PushDelay: sim.Delay(f.PushDelay),
		HealthDelay: f.HealthDelay, Timeout: f.Timeout,
		Undeclared: f.Undeclared, UtilizationNoise: f.UtilizationNoise, Price: sim.Price{CrossZone: f.CrossZone, CrossRegion: f.CrossRegion},
		Marks: marks(f), Degradation: f.Degradation.Plan(),
	}
	for i := range f.Demand {
		d := &f.Demand[i]
		src := sim.Source{
			Service: d.Service, From: d.From, Client: d.Client, Demand: shape(d.Rate, d.Shape), Noise: d.Noise,
			Clients: d.Clients, Silent: d.Silent, Liars: d.Liars, Lie: d.Lie, LieFrom: d.LieFrom,
		}
		if d.GRPC {
			src.Kind = dataplane.GRPC
		}
		s.Sources = append(s.Sources, src)
	}
	for _, c := range f.Capacity {
		s.Capacities = append(s.Capacities, sim.Capacity{Service: c.Service, Locality: c.Locality, Factor: shape(c.Factor, c.Shape)})
	}
	for _, m := range f.Metrics {
		s.Metrics = append(s.Metrics, sim.Metric(m))
	}
	for _, o := range f.Outages {
		s.Outages = append(s.Outages, sim.Outage(o))
	}
	for _, x := range f.Losses {
		s.Losses = append(s.Losses, sim.Loss{Input: plan.InputKind(x.What), Scope: x.Locality, From: x.From, To: x.To})
	}
	return s
}

// shape multiplies a quantity by factors that change.
func shape(v float64, factors []config.ScenarioShape) sim.Shape {
	all := []sim.Shape{sim.Constant(v)}
	for _, f := range factors {
		switch f.Kind {
		case "step":
			all = append(all, sim.Step(f.At, f.Factor))
		case "flash":
			all = append(all, sim.Flash(f.At, f.For, f.Factor))
		case "square":
			all = append(all, sim.Square(f.Period, f.At, f.Low, f.High))
		case "wave":
			all = append(all, sim.Wave(f.Period, f.At, f.Amplitude))
		case "ramp":
			all = append(all, sim.Ramp(f.From, f.To, f.Factor))
		}
	}
	return sim.Times(all...)
}

// marks are the moments at which something changes at once and for good.
func marks(f *config.Scenario) []time.Duration {
	var out []time.Duration
	add := func(at time.Duration) {
		if at > 0 && at < f.Length {
			out = append(out, at)
		}
	}
	shapes := func(list []config.ScenarioShape) {
		for _, s := range list {
			switch s.Kind {
			case "step":
				add(s.At)
			case "flash":
				add(s.At)
				add(s.At + s.For)
			}
		}
	}
	for i := range f.Demand {
		shapes(f.Demand[i].Shape)
	}
	for i := range f.Capacity {
		shapes(f.Capacity[i].Shape)
	}
	for _, o := range f.Outages {
		if o.Period == 0 {
			add(o.From)
			add(o.To)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// progressBar is one line on a terminal that stays in place; elsewhere it is
// nothing.
type progressBar struct {
	w     io.Writer // nil = no terminal
	all   int       // parts
	shown string
}

func newProgressBar(w io.Writer, all int) *progressBar {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &progressBar{w: w, all: all}
	}
	return &progressBar{}
}

const (
	progressWidth = 30
	clearTheLine  = "\r\x1b[K"
)

// show shows how much of a part is done, 0 to 1.
func (p *progressBar) show(part int, name string, done float64) {
	p.line(fmt.Sprintf("%d/%d %s", part+1, p.all, name), done)
}

// line shows a text and how much is done, 0 to 1. What is beyond that is shown as
// its end: of a trace in a pipe, or of one that grows, the size is not known.
func (p *progressBar) line(text string, done float64) {
	if p.w == nil {
		return
	}
	if done = max(0, min(1, done)); math.IsNaN(done) {
		done = 0
	}
	filled := int(done * progressWidth)
	line := fmt.Sprintf("[%s%s] %3.0f%%  %s", strings.Repeat("#", filled), strings.Repeat("-", progressWidth-filled), 100*done, text)
	if line != p.shown {
		p.shown = line
		_, _ = io.WriteString(p.w, clearTheLine+line) // nobody to tell
	}
}

func (p *progressBar) clear() {
	if p.w != nil && p.shown != "" {
		_, _ = io.WriteString(p.w, clearTheLine)
	}
}

// simulationRecorder writes what a simulated Isobar decides as a trace.
type simulationRecorder struct {
	*replay.Recorder

	out *os.File
}

// newSimulationRecorder puts a recorder into the place of Isobar among the
// policies; nil where no file is named.
func newSimulationRecorder(file string, scenarios []string, policies []sim.Policy) (*simulationRecorder, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // nothing is to be recorded
	}
	i := slices.IndexFunc(policies, func(p sim.Policy) bool { return p.Name == sim.NameIsobar })
	switch {
	case len(scenarios) != 1:
		return nil, usagef("--record needs one scenario, not %d: give its file", len(scenarios))
	case i < 0:
		return nil, usagef("--record records %s, which --policy excludes", sim.NameIsobar)
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // the user names it
	if err != nil {
		return nil, err
	}
	r := &simulationRecorder{Recorder: replay.NewRecorder(buildVersion(), 0), out: out}
	policies[i] = sim.Recorded(r)
	return r, nil
}

// Begin implements [sim.Recorder].
func (r *simulationRecorder) Begin(b sim.Beginning) error {
	start := replay.Start(b)
	return r.Recorder.Begin(&start)
}

// Flush implements [sim.Recorder].
func (r *simulationRecorder) Flush() error { return r.WriteNow(r.out) }

// end finishes the file.
func (r *simulationRecorder) end() error {
	if r == nil {
		return nil
	}
	r.End(replay.EndFinished)
	return errors.Join(r.Flush(), r.out.Close())
}
