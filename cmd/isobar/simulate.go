package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/config"
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
	cmd.Flags().StringVar(&flags.html, "html", "", "write a page with charts to this `file`, too")
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
